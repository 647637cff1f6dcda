/** Team and hosts: who works where on what, how full the context is, and how long each lease lasts. */

import { html } from "../vendor/standalone.module.js";
import { counted, oneLine, percent, plain } from "../format.js";
import { timeOf } from "../frame.js";
import { Button, Empty, Head, Link, Meter, Section, Since, State, Steer, TaskLink, useTick, Who } from "../parts.js";
import { askToSpawn, askToStop, askToTell } from "../steer.js";
import { frame } from "../store.js";

const GONE = new Set(["stopped"]);

function hostName(hosts, id) {
  const host = hosts.find((each) => each.id === id);
  const [machine, process] = String(host?.label ?? id ?? "").split(":");
  return process && /^\d+$/.test(process) ? `${machine}, process ${process}` : machine;
}

function Context({ share }) {
  if (share === null || share === undefined) return html`<span class="faint">–</span>`;
  return html`<span class="context"><${Meter} label=${`${percent(share)} of the context is full`}
    parts=${[{ share, kind: share > 0.85 ? "near spent" : "spent" }]} /><span class="num">
    ${percent(share)}</span></span>`;
}

function What({ member }) {
  if (member.status === "failed" || member.status === "stopped") return html`<span class="faint">
    ${oneLine(member.reason, 120)}</span>`;
  const held = member.task ? [member.task] : (member.holds ?? []).slice(0, 1);
  if (!held.length) return html`<span class="faint">–</span>`;
  const [what] = (member.doing?.what ?? "").split("\n");
  return html`<span class="team-what"><${TaskLink} id=${held[0]} bare data-item />
    ${member.doing?.what && html`<span class="doing">
    <span class="doing-what">turn ${member.doing.turn}, ${oneLine(what, 40)}</span> <${Since}
    at=${member.doing.since} /></span>`}</span>`;
}

function Row({ member, hosts }) {
  return html`<tr data-teammate=${member.name} data-status=${member.status}>
    <th scope="row"><${Link} to=${{ view: "board", filter: `by:${member.name}` }} class="plain"><${Who}
      name=${member.name} /><//>${member.lead && html` <span class="faint">lead</span>`}</th>
    <td class="hide-narrow">${plain((member.roles ?? []).join(", ") || "any role")}</td>
    <td><${State} state=${member.status} /></td>
    <td class="wide-cell"><${What} member=${member} /></td>
    <td class="hide-narrow"><${Context} share=${member.context} /></td>
    <td class="hide-medium faint">${oneLine(member.model?.split(":").pop(), 30)}</td>
    <td class="hide-medium faint">${member.host ? oneLine(hostName(hosts, member.host), 40) : ""}</td>
    <td class="acts-cell"><${Steer}>${!GONE.has(member.status) && html`<span class="row-acts"><${Button} kind="small"
      aria-label=${plain(`Message ${member.name}`)} onClick=${() => askToTell({ to: member.name })}>Message<//>
      <${Button} kind="small" aria-label=${plain(`Stop ${member.name}`)}
        onClick=${() => askToStop(member)}>Stop<//></span>`}<//></td>
  </tr>`;
}

/** What is left of a lease, counted down from when the server told it. */
function Lease({ host, told }) {
  useTick(frame().live);
  if (!host.alive) return html`<${State} state="lost" />`;
  if (host.lease_seconds === undefined) return html`<span class="faint">–</span>`;
  const left = Math.max(0, host.lease_seconds - (timeOf(frame()) - told) / 1000);
  return html`<span class="context"><${Meter} label=${`The lease lasts for ${Math.round(left)} more seconds`}
    parts=${[{ share: left / Math.max(30, host.lease_seconds), kind: left < 5 ? "near spent" : "spent" }]} />
    <span class="num">${Math.round(left)} s</span></span>`;
}

function Hosts({ hosts, team, told }) {
  if (!hosts.length) return html`<${Section} title="Hosts"><${Empty} says="No host is running, so nobody works."
    command="dugnad run" /><//>`;
  return html`<${Section} title="Hosts"><table class="table"><thead><tr><th scope="col">Host</th>
    <th scope="col">Teammates</th><th scope="col" class="hide-narrow">Runs for</th>
    <th scope="col">Lease</th></tr></thead>
    <tbody>${hosts.map((host) => html`<tr key=${host.id} data-host=${host.id}>
      <th scope="row" title=${plain(host.label)}>${oneLine(hostName(hosts, host.id), 60)}</th>
      <td class="num">${team.filter((member) => member.host === host.id && !GONE.has(member.status)).length}</td>
      <td class="hide-narrow"><${Since} at=${host.started_at} /></td><td><${Lease} host=${host}
        told=${told} /></td></tr>`)}</tbody></table><//>`;
}

const COLUMNS = [
  ["Name", ""], ["Roles", "hide-narrow"], ["Status", ""], ["Works on", "wide-cell"], ["Context", "hide-narrow"],
  ["Model", "hide-medium"], ["Host", "hide-medium"],
];

function Members({ team, hosts }) {
  return html`<table class="table team">
    <thead><tr>${COLUMNS.map(([name, kind]) => html`<th key=${name} scope="col" class=${kind}>${name}</th>`)}
      <td /></tr></thead>
    <tbody>${team.map((member) => html`<${Row} key=${member.name} member=${member} hosts=${hosts} />`)}</tbody></table>`;
}

export function Team() {
  const shown = frame();
  const { team, hosts } = shown;
  const here = team.filter((member) => !GONE.has(member.status));
  const left = team.filter((member) => GONE.has(member.status));
  const alive = hosts.filter((host) => host.alive).length;
  const says = here.length ? `${counted(here.length, "teammate")}, ${counted(alive, "host")}` : "";
  return html`
    <${Head} title="Team" says=${says}>
      <${Steer}><${Button} icon="plus" onClick=${askToSpawn}>Add a teammate<//><//>
    <//>
    <div class="body">
      ${here.length ? html`<${Members} team=${here} hosts=${hosts} />`
        : html`<${Empty} says="Nobody is on the team yet." command="dugnad spawn alice --role coder" />`}
      <${Hosts} hosts=${hosts} team=${team} told=${shown.now} />
      ${left.length > 0 && html`<details class="fold left-team"><summary>${counted(left.length, "teammate")} left</summary>
        <${Members} team=${left} hosts=${hosts} /></details>`}
    </div>`;
}

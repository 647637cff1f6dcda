"""What a teammate can do: board verbs as tools, `@tool` for a user's own, skills, and quoting others' words."""

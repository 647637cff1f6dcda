"""What is seen from outside: traces and metrics by OpenTelemetry, which are off unless asked for, and health."""

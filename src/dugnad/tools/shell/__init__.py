"""Running commands as tools: `bash`, background jobs, and what they print."""

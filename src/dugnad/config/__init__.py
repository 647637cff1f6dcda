"""What people write in files: the project, the user, MCP servers, external agents; and the one way to read them."""

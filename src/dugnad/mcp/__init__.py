"""`dugnad mcp`: the board as an MCP server, for agents that work on their own."""

"""Commands in a sandbox: what they may see, touch and reach, and how they end."""

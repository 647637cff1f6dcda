"""The two databases: one seam, one SQL, batching, and wake-ups between processes."""

"""Files beneath a root: reading, changing and finding them while others rename and link."""

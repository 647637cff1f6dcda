"""The page: a board in a browser, live and as it was at any event, and the writes of a person who steers."""

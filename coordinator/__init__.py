"""The operator's side; the crawl goes on without it."""

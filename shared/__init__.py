"""What both programs agree on: records, ring, sites, membership, frontier."""

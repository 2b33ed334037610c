"""The frontier's own scripts on a real store, under seeded schedules of calls that are lost, repeated late and forgotten.

Two or three nodes take one or two sites from each other. Whatever was ever asked may be asked again later, in any order;
an answer may be lost; and the store may go back to an earlier state, as when a replica that lags is promoted: anything
may be in the part that is lost, under `strict` nothing that was answered for. `ledger` says what must hold. Only the
scripts' clock is the schedule's, and their buckets are small so that they split.

`python -m tests.stores.amnesia --seeds N` runs N of them on each server, `--mutations` each weakened script until it
is caught, `--told` tells how.
"""

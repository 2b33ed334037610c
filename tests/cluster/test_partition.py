"""A node that is cut off from etcd but not from the web stops by itself, in time for whoever takes its sites."""

from pathlib import Path

import pytest

from coordinator import local
from shared import clock
from tests import servers
from tests.cluster import claims, harness, namespaces

pytestmark = [pytest.mark.cluster, pytest.mark.netns]

TTL_S, VIEW_LEASE_S, WIRE_S = 3, 2.5, 2.25


def etcd_at(folder: Path, gate: str) -> local.Server:
    """An etcd that listens at the gate too."""
    plain = servers.etcd35(folder)

    def command(port: int, peer_port: int) -> list[str]:
        both = f"--listen-client-urls=http://{local.LOOPBACK}:{port},http://{gate}:{port}"
        return [*plain._command(port, peer_port), both]

    return local.Server("etcd", command=command, answers=plain._answers, data=folder)


def test_a_node_cut_off_from_etcd_asks_nothing_once_its_sites_may_move(tmp_path: Path, cluster: str) -> None:
    with namespaces.machines(2) as (here, there):
        gate = here.gate
        store = servers.valkey9(
            tmp_path / "valkey", options=(*servers.UNSYNCED, "--bind", local.LOOPBACK, gate, "--protected-mode", "no")
        )
        etcd = etcd_at(tmp_path / "etcd", gate)
        with (
            servers.running(store),
            servers.running(etcd),
            harness.running(
                tmp_path,
                etcd=etcd.address,
                redis=local.redis_url(store),
                name=cluster,
                pages=14,
                options=(f"--lease-ttl={TTL_S}",),
            ) as run,
        ):
            run.found()
            for name, machine in (("n1", here), ("n2", there)):
                run.start(name, prefix=machine.prefix, host=machine.address, reach=gate)
            run.until(lambda: set(run.members()) == {"n1", "n2"}, 30, "both are members")
            run.seed()
            run.until(lambda: run.part_done(0.2), 40, "a part is done")
            victim = run.slow_in_flight().node
            sites, incarnation = run.held_by(victim), run.members()[victim].incarnation
            machine = here if victim == "n1" else there
            machine.cut(etcd.port)
            cut_s, cut_ms = harness.now_s(), clock.wall_ms()
            moved = claims.taken_over(
                run, victim, sites, cut_ms, within_s=max(TTL_S, VIEW_LEASE_S + WIRE_S) + TTL_S + 10
            )
            status, reason = run.nodes[victim].ready()
            assert (status, "etcd" in reason) == (503, True), reason
            machine.heal()
            heal_s = harness.now_s()
            asked = run.by(victim, since_s=cut_s, until_s=heal_s)
            assert asked, "its way to the web is open, and its authority lasts for a while"
            last_s = max(one.boot_s for one in asked) - cut_s
            assert last_s < VIEW_LEASE_S + 0.1, "then it asks no more"
            for move in moved:
                claims.told_in_full(move.moved, cause="lease_lost", settled_by={"time"})
            claims.waited_in_full(run, moved)

            def rejoined() -> bool:
                member = run.members().get(victim)
                return member is not None and member.incarnation != incarnation

            run.until(rejoined, 20, f"{victim} joins again")
            back_s = harness.now_s() - heal_s
            claims.finish(run)
            run.drain()
            repeats = claims.only_aborted_repeat(run)
            ratio = claims.gaps_kept(run)
            claims.audited(run)
            first_s = min(move.moved.time_ms for move in moved) / 1000 - cut_ms / 1000
            print(
                f"{len(moved)} sites; last request of {victim} {last_s:.2f} s after the cut (VL {VIEW_LEASE_S:g}), "
                f"claims from {first_s:.2f} s on, back {back_s:.1f} s after healing, {repeats} repeats, "
                f"smallest gap {ratio:.3f}"
            )

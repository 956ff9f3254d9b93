//! Which of several servers is chosen.

use proptest::prelude::*;

use super::*;
use crate::cluster::prometheus_discovery::candidates::{Recognition, ServerKind};

const UNKNOWN: Option<u64> = None;

/// A server with this many containers now and seven days ago.
fn server(
    name: &str,
    kind: ServerKind,
    now: impl Into<Option<u64>>,
    week_ago: impl Into<Option<u64>>,
) -> ProbedCandidate {
    let count = |count: Option<u64>| count.ok_or_else(|| "timeout".to_owned());
    let answer = ServerAnswer {
        flavor: ServerFlavor::Prometheus,
        version: None,
        containers_now: count(now.into()),
        containers_week_ago: count(week_ago.into()),
    };
    ProbedCandidate { answer: Ok(answer), ..failed(name, kind) }
}

fn failed(name: &str, kind: ServerKind) -> ProbedCandidate {
    let address = format!("m/{name}:9090").parse().expect("an address");
    let candidate = Candidate { address, kind, recognition: Recognition::Labels };
    ProbedCandidate { candidate, answer: Err("no response".to_owned()) }
}

fn names(ranked: &[ProbedCandidate]) -> Vec<&str> {
    ranked.iter().map(|one| one.candidate.address.name()).collect()
}

#[test]
fn the_server_that_knows_most_of_the_cluster_comes_first() {
    use ServerKind::{Prometheus, ThanosQuery, VmSelect};
    for (why, candidates, order) in [
        (
            "most containers",
            vec![server("a", Prometheus, 10, 10), server("b", Prometheus, 500, 400)],
            vec!["b", "a"],
        ),
        (
            "most containers, although another reaches back longer",
            vec![server("a", Prometheus, 100, 100), server("b", Prometheus, 500, 0)],
            vec!["b", "a"],
        ),
        (
            "the longest reach among servers with as many containers",
            vec![server("a", Prometheus, 1000, 0), server("b", Prometheus, 995, 900)],
            vec!["b", "a"],
        ),
        (
            "an unknown reach counts as none",
            vec![server("a", Prometheus, 1000, UNKNOWN), server("b", Prometheus, 1000, 1)],
            vec!["b", "a"],
        ),
        (
            "a query layer before the server behind it",
            vec![server("a", Prometheus, 655, 640), server("z", ThanosQuery, 654, 641)],
            vec!["z", "a"],
        ),
        (
            "a server that reaches back longer before a query layer",
            vec![server("a", Prometheus, 655, 640), server("z", VmSelect, 655, 0)],
            vec!["a", "z"],
        ),
        (
            "the name decides between equal servers",
            vec![server("c", Prometheus, 655, 640), server("b", Prometheus, 656, 641)],
            vec!["b", "c"],
        ),
        (
            "small counts are compared exactly",
            vec![server("a", Prometheus, 4, 4), server("b", Prometheus, 5, 4)],
            vec!["b", "a"],
        ),
        (
            "failures, empty and outdated servers come last",
            vec![
                failed("f", ThanosQuery),
                server("e", ThanosQuery, 0, UNKNOWN),
                server("d", ThanosQuery, 0, 9000),
                server("c", ThanosQuery, UNKNOWN, UNKNOWN),
                server("b", Prometheus, 1, 0),
            ],
            vec!["b", "c", "d", "e", "f"],
        ),
    ] {
        let mut reversed = candidates.clone();
        reversed.reverse();
        assert_eq!(names(&rank(candidates)), order, "{why}");
        assert_eq!(names(&rank(reversed)), order, "{why}, in the other order");
    }
    assert!(rank(Vec::new()).is_empty());
}

proptest! {
    #[test]
    fn nothing_is_lost_and_the_first_has_almost_the_most_containers(
        counts in prop::collection::vec((prop::option::of(0..300_u64), prop::option::of(0..300_u64)), 0..14)
    ) {
        let servers: Vec<_> = counts
            .iter()
            .enumerate()
            .map(|(index, (now, ago))| server(&format!("s{index}"), ServerKind::Prometheus, *now, *ago))
            .collect();
        let ranked = rank(servers.clone());
        let mut found = names(&ranked);
        found.sort_unstable();
        let mut given = names(&servers);
        given.sort_unstable();
        prop_assert_eq!(found, given);
        let most = counts.iter().filter_map(|(now, _)| *now).max().unwrap_or(0);
        if let (Some(first), 1..) = (ranked.first(), most) {
            prop_assert!(first.now() * 100 >= most * 99, "{} of {}", first.now(), most);
        }
    }
}

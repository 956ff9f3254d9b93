//! The namespaces of a recommender: one, or all but the ignored ones, and of those only its shard.

use std::str::FromStr;

/// The maximum number of shards; more are likely a typo.
const MAX_SHARDS: u32 = 1000;

/// The namespaces of a recommender. The default is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceScope {
    /// Only this namespace (`--vpa-object-namespace`).
    pub only: Option<String>,
    /// Without these namespaces (`--ignored-vpa-object-namespaces`).
    pub ignored: Vec<String>,
    /// Of the remaining namespaces, only this shard (`--shard`).
    pub shard: Option<Shard>,
}

impl NamespaceScope {
    pub fn includes(&self, namespace: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == namespace)
            && !self.ignored.iter().any(|ignored| ignored == namespace)
            && self.shard.is_none_or(|shard| shard.includes(namespace))
    }
}

/// One of several recommenders that divide the namespaces of a cluster: `2/3` is the second of three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The number of this shard, from 1 to `count`.
    pub index: u32,
    pub count: u32,
}

impl Shard {
    /// Whether this shard includes the namespace: exactly one of `count` shards does.
    pub fn includes(self, namespace: &str) -> bool {
        namespace_hash(namespace) % u64::from(self.count) + 1 == u64::from(self.index)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| text.parse::<u32>().ok();
        text.split_once('/')
            .and_then(|(index, count)| Some(Self { index: number(index)?, count: number(count)? }))
            .filter(|shard| (1..=MAX_SHARDS).contains(&shard.count))
            .filter(|shard| (1..=shard.count).contains(&shard.index))
            .ok_or_else(|| "expected <index>/<count>, such as 1/3, 2/3 or 3/3".to_owned())
    }
}

/// Hashes the name of a namespace: FNV-1a, then the finalizer of MurmurHash3, because the lowest bits of FNV-1a are
/// little more than a parity bit, and the remainder by 2 or 4 uses only those.
///
/// This must never change: all replicas of all releases must agree, or a namespace has two recommenders or none during
/// a rollout.
fn namespace_hash(namespace: &str) -> u64 {
    let mut hash = namespace.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_scope_is_one_namespace_or_all_except_ignored_ones() {
        let all = NamespaceScope::default();
        let single = NamespaceScope { only: Some("web".into()), ..NamespaceScope::default() };
        let without_ignored = NamespaceScope {
            ignored: vec!["kube-system".into(), "db".into()],
            ..NamespaceScope::default()
        };
        for (namespace, in_single, in_rest) in
            [("web", true, true), ("db", false, false), ("webs", false, true)]
        {
            assert!(all.includes(namespace));
            assert_eq!(single.includes(namespace), in_single, "{namespace}");
            assert_eq!(without_ignored.includes(namespace), in_rest, "{namespace}");
        }
    }

    #[test]
    fn shards_are_counted_from_one() {
        assert_eq!("2/3".parse(), Ok(Shard { index: 2, count: 3 }));
        for invalid in ["", "1", "0/3", "4/3", "1/0", "-1/3", "1/3/5", "a/b", "1/1001"] {
            assert!(invalid.parse::<Shard>().is_err(), "{invalid}");
        }
    }

    #[test]
    fn the_shard_of_a_namespace_is_stable() {
        // Pinned: a release with another hash would leave namespaces without a recommender during its rollout.
        let hashes = ["default", "kube-system", "team-1"].map(namespace_hash);
        assert_eq!(hashes, [0xd470_84e0_f7c5_d5ad, 0xe313_d0e7_4eaa_50dc, 0x0e34_b3c2_4c5a_a919]);
    }

    #[test]
    fn shards_have_similar_sizes() {
        for count in [2, 3, 4, 8, 16] {
            for index in 1..=count {
                let shard = Shard { index, count };
                let actual =
                    (0..8000).filter(|n| shard.includes(&format!("team-{n}"))).count() as f64;
                let expected = 8000.0 / f64::from(count);
                assert!(
                    (0.8..1.2).contains(&(actual / expected)),
                    "{index}/{count}: {actual} of {expected}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn shards_are_disjoint_and_cover_all_namespaces(namespace in "[a-z0-9-]{1,63}", count in 1_u32..50) {
            let scopes = (1..=count).map(|index| NamespaceScope { shard: Some(Shard { index, count }), ..NamespaceScope::default() });
            prop_assert_eq!(scopes.filter(|scope| scope.includes(&namespace)).count(), 1);
        }
    }
}

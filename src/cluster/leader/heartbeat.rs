//! The heartbeat: a Lease by which updaters know that the recommender works, and do not act on old recommendations.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{Client, api::Api};
use plimsoll_storage::WritePermit;
use tokio::sync::Mutex;

use crate::cluster::{
    clock::Clock,
    leader::election_rules,
    write::{
        AccessReview, AccessRule, WriteError, WriteStats, access_review::check_access,
        object_client::ObjectClient, stats::WriteKind,
    },
};

/// Annotation: the number of VerticalPodAutoscalers in the last pass.
pub const VPAS_ANNOTATION: &str = "plimsoll.dev/vpas";
/// Annotation: the state of the history that the last pass used.
pub const HISTORY_ANNOTATION: &str = "plimsoll.dev/history";
/// After this many intervals without a renewal, the recommender counts as down.
const LEASE_DURATION_INTERVALS: u32 = 3;
/// Maximum length of the variable part of a name; a Lease name may have 253 characters.
const MAX_SLUG_PART: usize = 60;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const ACCESS_NOT_REVIEWED: &str = "access has not been reviewed yet";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeartbeatResult {
    Renewed,
    /// The Lease was created: it did not exist.
    Created,
    /// Nothing was written: the Lease does not exist, and it is not known yet whether RBAC allows updating it later. A
    /// stale Lease would be worse than none. The next renewal reviews access again.
    AccessUnknown,
    /// Nothing was written, now and later: RBAC denies updating the Lease.
    Forbidden,
}

/// Writes the heartbeat of one recommender, or of one shard of it.
#[derive(Debug)]
pub struct Heartbeat {
    pub(crate) lease: ObjectClient<Lease>,
    identity: String,
    interval: Duration,
    access: Mutex<AccessReview>,
    /// As this process wrote it last.
    last_written: Mutex<Option<Lease>>,
}

impl Heartbeat {
    /// A heartbeat that is renewed every `interval`. The first renewal checks whether it is allowed.
    pub fn new(
        client: Client,
        namespace: &str,
        identity: &str,
        recommender: &str,
        shard: Option<&str>,
        interval: Duration,
        stats: Arc<WriteStats>,
    ) -> Self {
        let name = lease_name(recommender, shard);
        Self {
            lease: ObjectClient::new(
                Api::namespaced(client, namespace),
                &name,
                WriteKind::Heartbeat,
                REQUEST_TIMEOUT,
                stats,
            ),
            identity: identity.to_owned(),
            interval,
            access: Mutex::new(AccessReview::Unknown(ACCESS_NOT_REVIEWED.into())),
            last_written: Mutex::default(),
        }
    }

    /// The RBAC rules that a heartbeat needs besides `create`, which upstream's Role has.
    pub fn rules(&self) -> [AccessRule; 2] {
        ["get", "update"].map(|verb| self.lease.rule(verb))
    }

    /// Renews the Lease after a pass over `vpas` VerticalPodAutoscalers, with the state of their history.
    pub async fn renew(
        &self,
        permit: &dyn WritePermit,
        vpas: usize,
        history: &str,
    ) -> Result<HeartbeatResult, WriteError> {
        if self.review_access().await == AccessReview::Denied {
            return Ok(HeartbeatResult::Forbidden);
        }
        let mut own = self.last_written.lock().await;
        // Each request takes a permit of its own: a leader that was frozen meanwhile may have lost the lease.
        if let Some(known) = own.take() {
            permit.acquire().await?;
            match self.lease.replace(&self.renewed_lease(known, vpas, history)).await {
                Ok(stored) => {
                    *own = Some(stored);
                    return Ok(HeartbeatResult::Renewed);
                }
                Err(WriteError::NotFound | WriteError::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
        permit.acquire().await?;
        if let Some(read) = self.lease.get().await? {
            permit.acquire().await?;
            let renewed = self.renewed_lease(read, vpas, history);
            *own = Some(self.lease.replace(&renewed).await?);
            return Ok(HeartbeatResult::Renewed);
        }
        if !self.access.lock().await.is_allowed() {
            return Ok(HeartbeatResult::AccessUnknown);
        }
        self.lease.ensure_can_create().await?;
        permit.acquire().await?;
        let empty = Lease { metadata: self.lease.metadata(), spec: None };
        let first = self.renewed_lease(empty, vpas, history);
        *own = Some(self.lease.create(&first).await?);
        Ok(HeartbeatResult::Created)
    }

    /// Whether RBAC allows renewing the Lease. Reviews access until the result is known.
    async fn review_access(&self) -> AccessReview {
        let mut access = self.access.lock().await;
        let AccessReview::Unknown(previous) = &*access else { return access.clone() };
        let rules = self.rules();
        let verdicts = check_access(&self.lease.client(), &rules).await;
        let denied = verdicts.iter().find(|verdict| **verdict == AccessReview::Denied);
        let worst = denied.or_else(|| verdicts.iter().find(|verdict| !verdict.is_allowed()));
        let review = worst.cloned().unwrap_or(AccessReview::Allowed);
        let lease = self.lease.to_string();
        match &review {
            AccessReview::Allowed => tracing::debug!(lease, "allowed to renew heartbeat Lease"),
            AccessReview::Denied => {
                let rules: Vec<String> = rules.iter().map(ToString::to_string).collect();
                let rules = rules.join(", ");
                tracing::warn!(
                    lease,
                    %rules,
                    "not allowed to renew heartbeat Lease; updaters receive no heartbeat"
                );
            }
            AccessReview::Unknown(why) if previous == ACCESS_NOT_REVIEWED => tracing::warn!(
                lease,
                why,
                "failed to review access to heartbeat Lease; retrying after each pass"
            ),
            AccessReview::Unknown(_) => {}
        }
        access.clone_from(&review);
        review
    }

    fn renewed_lease(&self, mut lease: Lease, vpas: usize, history: &str) -> Lease {
        let now = MicroTime(Clock::wall().now().into());
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        if spec.holder_identity.as_ref() != Some(&self.identity) {
            spec.holder_identity = Some(self.identity.clone());
            spec.acquire_time = Some(now.clone());
        }
        spec.renew_time = Some(now);
        spec.lease_duration_seconds =
            Some(election_rules::seconds(self.interval.saturating_mul(LEASE_DURATION_INTERVALS)));
        let annotations = lease.metadata.annotations.get_or_insert_with(BTreeMap::new);
        annotations.insert(VPAS_ANNOTATION.into(), vpas.to_string());
        annotations.insert(HISTORY_ANNOTATION.into(), history.into());
        lease
    }
}

/// The name of the Lease of a recommender, or of one shard of it (`i/n`): `plimsoll-<slug>[-<i>-of-<n>]`. Recommender and
/// updater compute it independently, so it must never change between releases.
pub fn lease_name(recommender: &str, shard: Option<&str>) -> String {
    let slug = slug(recommender);
    match shard {
        Some(shard) => format!("plimsoll-{slug}-{}", slug_of_shard(shard)),
        None => format!("plimsoll-{slug}"),
    }
}

fn slug_of_shard(shard: &str) -> String {
    let numbers = shard.split_once('/');
    let numbers = numbers.filter(|(i, n)| is_number(i) && is_number(n));
    numbers.map_or_else(|| slug(shard), |(i, n)| format!("{i}-of-{n}"))
}

/// A text as part of an object's name. A valid text is unchanged; any other is made valid and gets a hash of the
/// original, so that names stay distinct.
pub fn slug(text: &str) -> String {
    let sanitized: String = text
        .chars()
        .map(|c| c.to_ascii_lowercase())
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let sanitized = sanitized.trim_matches('-');
    if sanitized == text
        && !text.is_empty()
        && text.len() <= MAX_SLUG_PART
        && !looks_like_shard(text)
    {
        return text.to_owned();
    }
    let hash = format!("{:016x}", fnv(text.as_bytes()));
    let max_length = MAX_SLUG_PART - hash.len() - 1;
    // `sanitized` is ASCII.
    let start =
        sanitized.get(..sanitized.len().min(max_length)).unwrap_or_default().trim_end_matches('-');
    if start.is_empty() { format!("x-{hash}") } else { format!("{start}-{hash}") }
}

/// A recommender called `a-1-of-2` is not shard 1 of 2 of the recommender `a`.
fn looks_like_shard(text: &str) -> bool {
    let mut parts = text.rsplitn(4, '-');
    let (n, of, i) = (parts.next(), parts.next(), parts.next());
    of == Some("of") && n.is_some_and(is_number) && i.is_some_and(is_number)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// 64-bit FNV-1a: short, and stable across releases and machines.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lease_names_consist_of_recommender_and_shard() {
        let long = "a".repeat(61);
        for (recommender, shard, expected) in [
            ("default", None, "plimsoll-default"),
            ("default", Some("1/3"), "plimsoll-default-1-of-3"),
            ("default-1-of-3", None, "plimsoll-default-1-of-3-b930e49256ad090a"),
            ("Nightly", None, "plimsoll-nightly-f6d4582d68e813ea"),
            ("team.load", None, "plimsoll-team-load-19018fe1ca254e66"),
            ("", None, "plimsoll-x-cbf29ce484222325"),
            (
                long.as_str(),
                None,
                "plimsoll-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-f9bf3487d17c93f0",
            ),
        ] {
            assert_eq!(lease_name(recommender, shard), expected);
        }
    }

    proptest! {
        #[test]
        fn every_lease_name_is_a_valid_object_name(text in ".{0,300}", shard in "([0-9]/[0-9]|.{0,90})") {
            let name = lease_name(&text, Some(&shard));
            let fits = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
            prop_assert!(name.len() <= 253 && name.chars().all(fits), "{name}");
            prop_assert!(!name.ends_with('-'), "{name}");
        }

        #[test]
        fn distinct_names_stay_distinct(one in "[a-bA-B._-]{0,6}", two in "[a-bA-B._-]{0,6}") {
            prop_assert_eq!(one == two, slug(&one) == slug(&two));
        }

        #[test]
        fn a_valid_name_is_unchanged(text in "[a-z]([-a-z0-9]{0,40}[a-z])?") {
            prop_assert_eq!(slug(&text), text);
        }
    }
}

//! What reviews of users gave, for a minute.

use std::{collections::BTreeSet, hash::Hash, sync::Arc, time::Duration};

use futures::{StreamExt as _, stream};
use moka::future::Cache;
use ring::digest::{SHA256, digest};
use tokio::time::Instant;

use super::{AccessReviewer, PageSource, failure::Failure};
use crate::ui::access::{Claim, Refusal, Scope, User};

/// How long the user of a token, and the rights of a user, are remembered.
pub(in crate::ui) const ACCESS_LIFETIME: Duration = Duration::from_mins(1);
/// Tokens and users that are remembered.
const MAX_REMEMBERED: u64 = 10_000;
/// Concurrent reviews for one user.
const MAX_REVIEWS: usize = 16;
/// Namespaces that are reviewed for one user.
const MAX_NAMESPACES: usize = 5_000;

/// The result of a review, and when it was requested.
#[derive(Clone, Debug)]
struct Reviewed<T> {
    at: Instant,
    result: T,
}

/// Reviews users, and remembers the results.
pub(super) struct AccessCache {
    reviewer: Arc<dyn AccessReviewer>,
    users: Cache<[u8; 32], Reviewed<Option<User>>>,
    scopes: Cache<User, Reviewed<Arc<Scope>>>,
}

impl AccessCache {
    pub fn new(reviewer: Arc<dyn AccessReviewer>) -> Self {
        let users = Cache::builder().max_capacity(MAX_REMEMBERED).time_to_live(ACCESS_LIFETIME);
        let scopes = Cache::builder().max_capacity(MAX_REMEMBERED).time_to_live(ACCESS_LIFETIME);
        Self { reviewer, users: users.build(), scopes: scopes.build() }
    }

    /// The namespaces that may be seen.
    pub async fn scope(
        &self,
        claimed: Claim,
        source: &dyn PageSource,
    ) -> Result<Arc<Scope>, Failure> {
        let user = match claimed {
            Claim::Everything => return Ok(Arc::new(Scope::All)),
            Claim::User(user) => user,
            Claim::Token(token) => {
                let mut key = [0; 32];
                key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
                let user = remembered(&self.users, &key, self.reviewer.user_of_token(&token)).await;
                user?.ok_or(Failure::Unauthorized(Refusal::NoToken))?
            }
        };
        remembered(&self.scopes, &user, self.review(&user, source)).await
    }

    async fn review(&self, user: &User, source: &dyn PageSource) -> Result<Arc<Scope>, String> {
        if self.reviewer.may_list(user, None).await? {
            return Ok(Arc::new(Scope::All));
        }
        let snapshot = source.snapshot();
        let namespaces =
            snapshot.as_ref().map(|snapshot| snapshot.namespaces()).unwrap_or_default();
        let namespaces: Vec<String> =
            namespaces.into_iter().take(MAX_NAMESPACES).map(ToOwned::to_owned).collect();
        let reviews = namespaces.into_iter().map(|namespace| async move {
            let allowed = self.reviewer.may_list(user, Some(&namespace)).await?;
            Ok::<_, String>(allowed.then_some(namespace))
        });
        let reviewed: Vec<_> = stream::iter(reviews).buffer_unordered(MAX_REVIEWS).collect().await;
        let allowed = reviewed.into_iter().filter_map(Result::transpose);
        Ok(Arc::new(Scope::Namespaces(allowed.collect::<Result<BTreeSet<_>, _>>()?)))
    }
}

/// The last result, if it is not too old, else that of a new review. Failed reviews are not remembered.
async fn remembered<K, T>(
    cache: &Cache<K, Reviewed<T>>,
    key: &K,
    review: impl Future<Output = Result<T, String>>,
) -> Result<T, Failure>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    T: Clone + Send + Sync + 'static,
{
    if let Some(known) = cache.get(key).await {
        if known.at.elapsed() < ACCESS_LIFETIME {
            return Ok(known.result);
        }
        cache.invalidate(key).await;
    }
    // The API server may answer late: what counts is when it was asked.
    let at = Instant::now();
    let reviewed = async { review.await.map(|result| Reviewed { at, result }) };
    match cache.try_get_with_by_ref(key, reviewed).await {
        Ok(reviewed) => Ok(reviewed.result),
        Err(why) => {
            tracing::warn!(%why, "access could not be reviewed");
            Err(Failure::Unreviewed)
        }
    }
}

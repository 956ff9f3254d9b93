//! What a server says about itself: version, flags, targets, names of labels.

use serde::de::DeserializeOwned;

use super::{Client, pace};
use crate::prometheus::failure::Failure;

/// What such an answer may have. Flags and build information are some KB; label values of a large server some MB.
const MOST: usize = 32 << 20;

/// What all answers of Prometheus have in common.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wrapped<T> {
    data: Option<T>,
    #[serde(default)]
    is_partial: bool,
}

impl Client {
    /// The `data` of an answer that is no query's, from a path like `/api/v1/status/buildinfo`. It is held whole,
    /// so it is for what is small.
    pub async fn document<T: DeserializeOwned>(
        &self,
        path: &str,
        form: &[(&str, String)],
    ) -> Result<T, Failure> {
        let mut failures = 0;
        loop {
            let unread = |why: String| {
                Failure::NotPrometheus(format!("the answer of {path} cannot be read: {why}"))
            };
            let answered = match self.fetch(path, form, MOST).await {
                Ok(body) => {
                    let wrapped: Wrapped<T> =
                        serde_json::from_slice(&body).map_err(|why| unread(why.to_string()))?;
                    self.accept(wrapped.is_partial).map(|()| wrapped.data)
                }
                Err(failure) => Err(failure),
            };
            match answered {
                Ok(data) => return data.ok_or_else(|| unread("it has no data".to_owned())),
                Err(failure) => {
                    failures += 1;
                    if !failure.is_passing() || failures >= self.limits.attempts {
                        return Err(failure);
                    }
                    tokio::time::sleep(pace::pause(&self.limits, failures, &failure)).await;
                }
            }
        }
    }
}

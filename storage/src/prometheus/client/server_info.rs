//! What a server says about itself: version, flags, targets, names of labels.

use serde::de::DeserializeOwned;

use super::{PrometheusClient, backoff};
use crate::prometheus::query_error::QueryError;

/// What such an answer may have. Flags and build information are some KB; label values of a large server some MB.
const MOST: usize = 32 << 20;

/// What all answers of Prometheus have in common.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApiResponse<T> {
    data: Option<T>,
    #[serde(default)]
    is_partial: bool,
}

impl PrometheusClient {
    /// The `data` of an answer that is no query's, from a path like `/api/v1/status/buildinfo`. It is held whole,
    /// so it is for what is small.
    pub async fn get_data<T: DeserializeOwned>(
        &self,
        path: &str,
        form: &[(&str, String)],
    ) -> Result<T, QueryError> {
        let mut failures = 0;
        loop {
            let unread = |why: String| {
                QueryError::NotPrometheus(format!("the answer of {path} cannot be read: {why}"))
            };
            let answered = match self.fetch(path, form, MOST).await {
                Ok(body) => {
                    let wrapped: ApiResponse<T> =
                        serde_json::from_slice(&body).map_err(|why| unread(why.to_string()))?;
                    self.check_partial(wrapped.is_partial).map(|()| wrapped.data)
                }
                Err(failure) => Err(failure),
            };
            match answered {
                Ok(data) => return data.ok_or_else(|| unread("it has no data".to_owned())),
                Err(failure) => {
                    failures += 1;
                    if !failure.is_transient() || failures >= self.limits.max_attempts {
                        return Err(failure);
                    }
                    tokio::time::sleep(backoff::pause(&self.limits, failures, &failure)).await;
                }
            }
        }
    }
}

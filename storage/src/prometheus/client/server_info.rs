//! Information about a server: version, flags, targets, label names.

use serde::de::DeserializeOwned;

use super::PrometheusClient;
use crate::prometheus::query_error::QueryError;

/// Size limit of a response. Flags and build information take some KB, label values of a large server some MB.
const MAX_BYTES: usize = 32 << 20;

/// The common envelope of Prometheus API responses.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApiResponse<T> {
    data: Option<T>,
    #[serde(default)]
    is_partial: bool,
}

impl PrometheusClient {
    /// Fetches the `data` of a response other than a query result, from a path like `/api/v1/status/buildinfo`. It is held
    /// in memory, so use it for small responses.
    pub async fn get_data<T: DeserializeOwned>(
        &self,
        path: &str,
        form: &[(&str, String)],
    ) -> Result<T, QueryError> {
        let mut failures = 0;
        loop {
            let decode_error = |why: String| {
                QueryError::NotPrometheus(format!("failed to decode the response of {path}: {why}"))
            };
            let result = match self.fetch(path, form, MAX_BYTES).await {
                Ok(body) => {
                    let response: ApiResponse<T> = serde_json::from_slice(&body)
                        .map_err(|why| decode_error(why.to_string()))?;
                    self.check_partial(response.is_partial).map(|()| response.data)
                }
                Err(failure) => Err(failure),
            };
            match result {
                Ok(data) => return data.ok_or_else(|| decode_error("it has no data".to_owned())),
                Err(failure) => self.wait_for_retry(&mut failures, failure).await?,
            }
        }
    }
}

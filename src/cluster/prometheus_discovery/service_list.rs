//! Reads the Services of a cluster page by page, and keeps only candidates.

use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::{Api, Client, api::ListParams};
use tokio::time::timeout;

use super::{candidates::CandidateSelection, error::DiscoveryError, operated::OperatedServers};
use crate::cluster::{
    list_stream::error_message, paged_requests::list_pages, watch::maybe_object::MaybeObject,
};

const TIMEOUT: Duration = Duration::from_secs(30);

/// Reads all Services. One that cannot be decoded is not a candidate.
pub(super) async fn select_candidates(
    client: &Client,
) -> Result<CandidateSelection, DiscoveryError> {
    timeout(TIMEOUT, read_pages(client)).await.unwrap_or_else(|_| {
        let why = format!("the list is not complete after {TIMEOUT:?}");
        Err(DiscoveryError::ListFailed { why })
    })
}

async fn read_pages(client: &Client) -> Result<CandidateSelection, DiscoveryError> {
    let services: Api<MaybeObject<Service>> = Api::all(client.clone());
    let mut selection = CandidateSelection::new(OperatedServers::read(client).await);
    let pages = list_pages(&services, ListParams::default(), |page| {
        for MaybeObject(service) in &page {
            match service {
                Ok(service) => selection.add(service),
                Err(invalid) => tracing::debug!(%invalid, "ignoring an invalid Service"),
            }
        }
    });
    pages.await.map_err(|error| {
        let why = error_message(&error);
        match error {
            kube::Error::Api(status) if status.code == 403 => DiscoveryError::ListForbidden { why },
            _ => DiscoveryError::ListFailed { why },
        }
    })?;
    Ok(selection)
}

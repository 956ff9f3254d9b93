//! What objects of any kind that set replicas say alike: which workload they mean, and how a recommender is reached.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The workload whose replicas are set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleTarget {
    /// Group and version of the workload, such as apps/v1.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// Kind of the workload, such as Deployment.
    pub kind: String,
    /// Name of the workload.
    pub name: String,
}

/// How a recommender is reached over TLS. Files are those of the controller's container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsConfig {
    /// Certificates of authorities that are trusted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ca_file: String,
    /// Certificate that is shown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cert_file: String,
    /// Key of that certificate.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key_file: String,
    /// Name that the certificate of the service has to have.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub server_name: String,
    /// Any certificate of the service is good.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure_skip_verify: bool,
    /// The oldest version of TLS.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(regex(pattern = r"^TLS1[0-3]$"))]
    pub min_version: String,
    /// The newest version of TLS.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(regex(pattern = r"^TLS1[0-3]$"))]
    pub max_version: String,
}

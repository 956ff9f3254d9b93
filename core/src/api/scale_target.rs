//! Types shared by all horizontal autoscalers: the target workload, and the TLS settings of a recommender.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The target workload.
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

/// TLS settings for a recommender. Files are in the controller's container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsConfig {
    /// File with the trusted CA certificates.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ca_file: String,
    /// File with the client certificate.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cert_file: String,
    /// File with the key of the client certificate.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key_file: String,
    /// Expected name in the certificate of the service.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub server_name: String,
    /// Accept any certificate of the service.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure_skip_verify: bool,
    /// The minimum TLS version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(regex(pattern = r"^TLS1[0-3]$"))]
    pub min_version: String,
    /// The maximum TLS version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(regex(pattern = r"^TLS1[0-3]$"))]
    pub max_version: String,
}

//! Connects a command to a cluster like kubectl, with short timeouts.

use std::{io, path::PathBuf, time::Duration};

use clap::{ArgAction, Args};
use kube::{
    Client, Config,
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// How to connect to a cluster: by default to that of `KUBECONFIG` or `~/.kube/config`, or the own one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct ClusterOptions {
    /// Path of the kubeconfig file
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig file
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// The user that requests are sent as.
    #[command(flatten)]
    pub impersonation: Impersonation,
}

/// The user that requests are sent as, like in kubectl: by default that of the kubeconfig.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct Impersonation {
    /// User to impersonate; needs the permission for it
    #[arg(long = "as", value_name = "USER")]
    pub as_user: Option<String>,
    /// Group to impersonate (repeatable)
    #[arg(long, value_name = "GROUP", action = ArgAction::Append, requires = "as_user")]
    pub as_group: Vec<String>,
}

/// No cluster is configured, or its configuration is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoCluster(pub String);

#[derive(Clone)]
pub struct Cluster {
    pub client: Client,
    /// The server address, for messages.
    pub address: String,
    pub namespace: String,
}

/// How to connect to a cluster. Sends no requests.
pub struct ClusterConnection {
    config: Config,
    /// Whether the cluster is the own one, found by the service account of the pod.
    pub is_in_cluster: bool,
}

/// Connects to the cluster like kubectl. The program with its version is the user agent.
pub async fn connect(
    cluster_options: &ClusterOptions,
    program: &str,
) -> Result<Cluster, NoCluster> {
    load_connection(cluster_options, program).await?.cluster()
}

/// Reads how to connect to the cluster like kubectl. The program with its version is the user agent.
pub async fn load_connection(
    cluster_options: &ClusterOptions,
    program: &str,
) -> Result<ClusterConnection, NoCluster> {
    let options =
        KubeConfigOptions { context: cluster_options.context.clone(), ..Default::default() };
    let mut is_in_cluster = false;
    let mut config = match &cluster_options.kubeconfig {
        Some(path) => {
            let file_error =
                |error: String| NoCluster(format!("--kubeconfig={}: {error}", path.display()));
            let file =
                Kubeconfig::read_from(path).map_err(|error| file_error(error.to_string()))?;
            Config::from_custom_kubeconfig(file, &options)
                .await
                .map_err(|error| file_error(error.to_string()))?
        }
        None => match Config::from_kubeconfig(&options).await {
            Ok(config) => config,
            Err(error) if cluster_options.context.is_some() => {
                return Err(NoCluster(error.to_string()));
            }
            Err(error) => {
                is_in_cluster = true;
                Config::incluster().map_err(|in_cluster| {
                    let why = describe_missing_cluster(&error, &in_cluster);
                    NoCluster(format!(
                        "no cluster configured: {why}; set KUBECONFIG or --kubeconfig"
                    ))
                })?
            }
        },
    };
    cluster_options.impersonation.apply(&mut config)?;
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(RESPONSE_TIMEOUT);
    let agent = http::HeaderValue::try_from(format!("{program}/{}", env!("CARGO_PKG_VERSION")));
    let agent = agent.map_err(|error| NoCluster(error.to_string()))?;
    config.headers.push((http::header::USER_AGENT, agent));
    Ok(ClusterConnection { config, is_in_cluster })
}

/// Why there is no cluster, by what is more likely to be meant: the own cluster in a pod, else the kubeconfig.
pub(super) fn describe_missing_cluster(
    kubeconfig: &KubeconfigError,
    in_cluster: &InClusterError,
) -> String {
    match (in_cluster, kubeconfig) {
        // kube-rs quotes the path of a missing file twice.
        (InClusterError::ReadEnvironmentVariable(_), KubeconfigError::ReadConfig(why, path))
            if why.kind() == io::ErrorKind::NotFound =>
        {
            format!("there is no file {}", path.display())
        }
        (InClusterError::ReadEnvironmentVariable(_), other) => other.to_string(),
        (other, _) => other.to_string(),
    }
}

impl Impersonation {
    /// Adds the user and the groups, in place of those of the kubeconfig.
    fn apply(&self, config: &mut Config) -> Result<(), NoCluster> {
        let check = |flag: &str, text: &str| {
            let is_valid = !text.is_empty() && http::HeaderValue::from_str(text).is_ok();
            let invalid = || NoCluster(format!("--{flag}={text:?}: it cannot be sent in a header"));
            is_valid.then_some(()).ok_or_else(invalid)
        };
        if let Some(user) = &self.as_user {
            check("as", user)?;
            config.auth_info.impersonate = Some(user.clone());
        }
        for group in &self.as_group {
            check("as-group", group)?;
        }
        if !self.as_group.is_empty() {
            config.auth_info.impersonate_groups = Some(self.as_group.clone());
        }
        Ok(())
    }
}

impl ClusterConnection {
    pub fn cluster(&self) -> Result<Cluster, NoCluster> {
        let (address, namespace) = (self.address(), self.config.default_namespace.clone());
        let client = Client::try_from(self.config.clone())
            .map_err(|error| NoCluster(format!("{address}: {error}")))?;
        Ok(Cluster { client, address, namespace })
    }

    /// A client for requests that take as long as the server behind the API server needs, such as queries: they have
    /// timeouts of their own.
    pub fn query_client(&self) -> Result<Client, NoCluster> {
        let mut config = self.config.clone();
        config.read_timeout = None;
        Client::try_from(config).map_err(|error| NoCluster(format!("{}: {error}", self.address())))
    }

    /// The server address, for messages.
    fn address(&self) -> String {
        self.config.cluster_url.to_string().trim_end_matches('/').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::new("https://127.0.0.1:6443".parse().expect("an address"))
    }

    #[test]
    fn impersonation_replaces_that_of_the_kubeconfig() {
        let mut config = config();
        config.auth_info.impersonate = Some("root".to_owned());
        config.auth_info.impersonate_groups = Some(vec!["admins".to_owned()]);
        Impersonation::default().apply(&mut config).expect("nothing to do");
        assert_eq!(config.auth_info.impersonate.as_deref(), Some("root"));
        let groups = vec!["team-a".to_owned(), "team-b".to_owned()];
        let amy = Impersonation { as_user: Some("amy".to_owned()), as_group: groups.clone() };
        amy.apply(&mut config).expect("valid");
        assert_eq!(config.auth_info.impersonate.as_deref(), Some("amy"));
        assert_eq!(config.auth_info.impersonate_groups, Some(groups));
    }

    #[test]
    fn names_that_are_no_header_are_rejected() {
        for (user, groups, flag) in [
            ("", vec![], "--as="),
            ("a\nb", vec![], "--as="),
            ("amy", vec!["a\r\nb"], "--as-group="),
        ] {
            let as_group = groups.into_iter().map(ToOwned::to_owned).collect();
            let impersonation = Impersonation { as_user: Some(user.to_owned()), as_group };
            let error = impersonation.apply(&mut config()).expect_err("invalid").to_string();
            assert!(error.starts_with(flag) && !error.contains('\n'), "{error}");
        }
    }
    #[test]
    fn a_missing_cluster_is_told_by_the_file_or_the_account_that_is_missing() {
        let absent = || InClusterError::ReadEnvironmentVariable(std::env::VarError::NotPresent);
        let not_found = || io::Error::from(io::ErrorKind::NotFound);
        let missing = KubeconfigError::ReadConfig(not_found(), "/home/me/.kube/config".into());
        let why = describe_missing_cluster(&missing, &absent());
        assert_eq!(why, "there is no file /home/me/.kube/config");
        let why = describe_missing_cluster(&KubeconfigError::CurrentContextNotSet, &absent());
        assert_eq!(why, KubeconfigError::CurrentContextNotSet.to_string());
        // In a pod, there is no kubeconfig to look for.
        let unreadable = InClusterError::ReadDefaultNamespace(not_found());
        let why = describe_missing_cluster(&missing, &unreadable);
        assert_eq!(why, unreadable.to_string());
    }
}

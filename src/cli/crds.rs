//! `plimsoll crds`: prints the CustomResourceDefinitions for `kubectl apply`.

use clap::Args;

use super::{
    Exit,
    output::{self, CliError},
};

/// Prints the CustomResourceDefinitions as YAML
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  plimsoll crds | kubectl apply --server-side -f -")]
pub struct CrdsArgs {}

pub fn run(arguments: &CrdsArgs) -> Result<Exit, CliError> {
    let CrdsArgs {} = arguments;
    let yaml = plimsoll_core::api::crds_yaml()
        .map_err(|error| CliError::new(Exit::Internal, error.to_string()))?;
    output::print_result(&yaml)?;
    Ok(Exit::Fine)
}

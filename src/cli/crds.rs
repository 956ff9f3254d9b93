//! `plimsoll crds`: the CustomResourceDefinitions, ready for `kubectl apply`.

use clap::Args;

use super::{
    Exit,
    output::{self, Problem},
};

/// Prints the CustomResourceDefinitions as YAML
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  plimsoll crds | kubectl apply --server-side -f -")]
pub struct CrdsArgs {}

/// Prints them.
pub fn run(arguments: &CrdsArgs) -> Result<Exit, Problem> {
    let CrdsArgs {} = arguments;
    let yaml = plimsoll_core::api::crds_yaml()
        .map_err(|error| Problem::new(Exit::Internal, error.to_string()))?;
    output::say(&yaml)?;
    Ok(Exit::Fine)
}

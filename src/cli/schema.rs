//! `plimsoll schema`: the JSON Schemas of what the commands print, for those who have the program alone.

use clap::{Args, builder::PossibleValuesParser};

use super::{
    Exit,
    output::{self, CliError},
};

pub(super) const EXAMPLES: &str = "\
Examples:
  plimsoll schema                      names of all schemas
  plimsoll schema recommend            the schema of recommend -o json
  plimsoll recommend -o json | check-jsonschema --schemafile \\
    <(plimsoll schema recommend) -";

macro_rules! schemas {
    ($($name:literal),* $(,)?) => {
        /// The name of each schema, and its text.
        const SCHEMAS: &[(&str, &str)] = &[$((
            $name,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/schema/", $name, ".v1.json")),
        )),*];
    };
}

schemas![
    "backtest",
    "demo",
    "doctor-cluster",
    "doctor-hpa",
    "doctor-prometheus",
    "explain-hpa",
    "explain-pod",
    "explain-vpa",
    "explain-wpa",
    "recommend",
    "status",
    "ui",
];

/// Prints the JSON Schema of what a command prints
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SchemaArgs {
    /// The output; without it, all names
    #[arg(value_parser = PossibleValuesParser::new(SCHEMAS.iter().map(|(name, _)| *name)))]
    name: Option<String>,
}

pub fn run(arguments: &SchemaArgs) -> Result<Exit, CliError> {
    let Some(name) = &arguments.name else {
        let names: Vec<&str> = SCHEMAS.iter().map(|(name, _)| *name).collect();
        output::print_result(&(names.join("\n") + "\n"))?;
        return Ok(Exit::Fine);
    };
    let found = SCHEMAS.iter().find(|(known, _)| known == name);
    let (_, text) = found.ok_or_else(|| CliError::usage(format!("there is no schema {name}")))?;
    output::print_result(text)?;
    Ok(Exit::Fine)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use serde_json::Value;

    use super::*;

    #[test]
    fn all_schemas_of_the_documentation_are_there_and_have_an_id_of_their_own() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schema");
        let files = fs::read_dir(folder).expect("a folder").flatten();
        let files: BTreeSet<String> =
            files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        let known: BTreeSet<String> =
            SCHEMAS.iter().map(|(name, _)| format!("{name}.v1.json")).collect();
        assert_eq!(known, files);
        for (name, text) in SCHEMAS {
            let schema: Value = serde_json::from_str(text).expect("JSON");
            assert_eq!(schema["$id"], format!("https://plimsoll.dev/schema/{name}.v1.json"));
        }
    }
}

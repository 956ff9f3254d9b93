//! The forms of the report, and `-o FORM[=FILE]`.

use std::{fmt, path::PathBuf, str::FromStr};

use plimsoll_core::rightsizing::report::Report;
use strum::{EnumIter, EnumString, IntoEnumIterator as _, IntoStaticStr};

use super::{
    columns::Column,
    csv, json, markdown,
    sarif::{self, Placement},
    selection::SortKey,
    slack, table, wide,
};
use crate::report::style::Style;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EnumString, EnumIter, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Form {
    /// The workloads that need a change, as text.
    Table,
    /// One row for each container and resource, as text that may be wider than the terminal.
    Wide,
    Json,
    Yaml,
    /// One row for each container and resource, separated by commas.
    Csv,
    /// One row for each container and resource, separated by tabs.
    Tsv,
    /// The table for issues and pull requests.
    Markdown,
    /// One file that a browser shows without network.
    Html,
    /// A kustomize component with a patch for each workload.
    Kustomize,
    /// Strategic merge patches.
    Strategic,
    /// Values for Helm charts.
    HelmValues,
    /// VerticalPodAutoscalers that only recommend.
    Vpa,
    /// A message for a webhook of Slack, in its Block Kit.
    Slack,
    /// Findings for code scanning.
    Sarif,
}

impl Form {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whether it consists of several files, so that it needs a directory.
    pub const fn is_directory(self) -> bool {
        matches!(self, Self::Kustomize)
    }

    pub fn names() -> Vec<&'static str> {
        Self::iter().map(Self::name).collect()
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A value of `-o`: a form, and the file or directory that it is written to. Without one it goes to standard output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputTarget {
    pub form: Form,
    /// The file, or the directory of a form of several files.
    pub path: Option<PathBuf>,
}

/// An invalid value of `-o`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOutput {
    /// There is no such form.
    #[error("unknown form {0:?}: use one of {names}", names = Form::names().join(", "))]
    UnknownForm(String),
    /// The form has several files.
    #[error("{0} writes several files: specify a directory as {0}=DIR")]
    WithoutDirectory(Form),
    /// Nothing follows the equals sign.
    #[error("specify a file after {0}=, or leave out the equals sign for standard output")]
    WithoutPath(Form),
}

impl FromStr for OutputTarget {
    type Err = InvalidOutput;

    fn from_str(text: &str) -> Result<Self, InvalidOutput> {
        let (name, path) = match text.split_once('=') {
            Some((name, path)) => (name, Some(path)),
            None => (text, None),
        };
        let form: Form = name.parse().map_err(|_| InvalidOutput::UnknownForm(name.to_owned()))?;
        match path {
            Some("") => Err(InvalidOutput::WithoutPath(form)),
            None if form.is_directory() => Err(InvalidOutput::WithoutDirectory(form)),
            path => Ok(Self { form, path: path.map(PathBuf::from) }),
        }
    }
}

/// What a user may choose about a form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormOptions {
    /// The maximum of containers in each section of `table`, `markdown` and `slack`, and of those in `wide`, `csv` and
    /// `tsv`. Each form has its own default.
    pub top: Option<usize>,
    /// The order of containers.
    pub sort: Option<SortKey>,
    /// The columns of `wide`, `csv` and `tsv`; `table` has a row for each resource if this is not empty.
    pub columns: Vec<Column>,
    /// Where manifests set the resources, for `sarif`.
    pub placements: Vec<Placement>,
}

/// Why a form cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The form is made of more than the report.
    #[error("{0} is not a text form")]
    NotText(Form),
    /// The report cannot be serialized.
    #[error("cannot write the report as {form}: {why}")]
    Serialization {
        form: Form,
        /// The error of the library.
        why: String,
    },
}

/// Renders a text form of the report.
pub fn render(
    form: Form,
    report: &Report,
    style: &Style,
    options: &FormOptions,
) -> Result<String, RenderError> {
    let serialization = |why: String| RenderError::Serialization { form, why };
    Ok(match form {
        Form::Table if options.columns.is_empty() => table::render(report, style, options),
        Form::Table => wide::render_to_fit(report, style, options),
        Form::Wide => wide::render(report, style, options),
        Form::Json => json::json(report).map_err(|error| serialization(error.to_string()))?,
        Form::Yaml => json::yaml(report).map_err(|error| serialization(error.to_string()))?,
        Form::Csv => csv::render(report, csv::Dialect::Csv, options),
        Form::Tsv => csv::render(report, csv::Dialect::Tsv, options),
        Form::Markdown => markdown::render(report, options),
        Form::Slack => {
            slack::render(report, options).map_err(|error| serialization(error.to_string()))?
        }
        Form::Sarif => sarif::render(report, &options.placements)
            .map_err(|error| serialization(error.to_string()))?,
        Form::Html | Form::Kustomize | Form::Strategic | Form::HelmValues | Form::Vpa => {
            return Err(RenderError::NotText(form));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_is_a_form_and_maybe_a_file() {
        for (text, form, path) in [
            ("table", Form::Table, None),
            ("json=report.json", Form::Json, Some("report.json")),
            ("csv=a=b.csv", Form::Csv, Some("a=b.csv")),
            ("helm-values", Form::HelmValues, None),
            ("kustomize=patches/", Form::Kustomize, Some("patches/")),
        ] {
            let expected = OutputTarget { form, path: path.map(PathBuf::from) };
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn an_invalid_output_says_what_to_write() {
        let error = |text: &str| text.parse::<OutputTarget>().expect_err("invalid").to_string();
        assert_eq!(
            error("xml=a"),
            "unknown form \"xml\": use one of table, wide, json, yaml, csv, tsv, markdown, html, kustomize, strategic, \
             helm-values, vpa, slack, sarif"
        );
        assert_eq!(
            error("kustomize"),
            "kustomize writes several files: specify a directory as kustomize=DIR"
        );
        assert_eq!(
            error("json="),
            "specify a file after json=, or leave out the equals sign for standard output"
        );
    }
}

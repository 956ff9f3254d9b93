//! The forms of a backtest, and their names on the command line.

use std::{fmt, io, path::PathBuf, str::FromStr};

use plimsoll_core::backtest::{account::WorkloadAccount, report::BacktestReport};
use strum::{EnumIter, EnumString, IntoEnumIterator as _, IntoStaticStr};

use super::{csv, html, markdown, ndjson, table, wide};
use crate::report::style::Style;

#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumIter, EnumString, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum BacktestForm {
    /// A table of policies for people.
    Table,
    /// The same with a line for each policy and day.
    Wide,
    /// The report as data.
    Json,
    /// The accounts: a line for each container, policy and day.
    Ndjson,
    /// A row for each container and policy.
    Csv,
    /// Tables for issues and pull requests.
    Markdown,
    /// A page with charts.
    Html,
}

impl BacktestForm {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl fmt::Display for BacktestForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A value of `-o`: a form, and the file that it is written to. Without one it goes to standard output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BacktestOutput {
    pub form: BacktestForm,
    /// The file.
    pub path: Option<PathBuf>,
}

/// An invalid value of `-o`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOutput {
    /// There is no such form.
    #[error("unknown form {form:?}: use one of {known}")]
    UnknownForm {
        /// What was given.
        form: String,
        known: String,
    },
    /// Nothing follows the equals sign.
    #[error("specify a file after {0}=, or leave out the equals sign for standard output")]
    WithoutPath(BacktestForm),
}

impl FromStr for BacktestOutput {
    type Err = InvalidOutput;

    fn from_str(text: &str) -> Result<Self, InvalidOutput> {
        let (name, path) = match text.split_once('=') {
            Some((name, path)) => (name, Some(path)),
            None => (text, None),
        };
        let form: BacktestForm = name.parse().map_err(|_| InvalidOutput::UnknownForm {
            form: name.to_owned(),
            known: BacktestForm::iter().map(BacktestForm::name).collect::<Vec<_>>().join(", "),
        })?;
        match path {
            Some("") => Err(InvalidOutput::WithoutPath(form)),
            path => Ok(Self { form, path: path.map(PathBuf::from) }),
        }
    }
}

/// Renders a form. [`BacktestForm::Ndjson`] can also be written piece by piece with [`write_ndjson`].
pub fn render(
    form: BacktestForm,
    report: &BacktestReport,
    accounts: &[WorkloadAccount],
    style: &Style,
) -> Result<String, serde_json::Error> {
    Ok(match form {
        BacktestForm::Table => table::render(report, style),
        BacktestForm::Wide => wide::render(report, style),
        BacktestForm::Json => serde_json::to_string_pretty(report)? + "\n",
        BacktestForm::Ndjson => {
            let mut lines = Vec::new();
            ndjson::write(accounts, &mut lines).map_err(serde_json::Error::io)?;
            String::from_utf8(lines).unwrap_or_default()
        }
        BacktestForm::Csv => csv::render(accounts),
        BacktestForm::Markdown => markdown::render(report),
        BacktestForm::Html => html::render(report)?,
    })
}

/// Writes a line for each container, policy and day, without building all of them in memory.
pub fn write_ndjson(accounts: &[WorkloadAccount], out: impl io::Write) -> io::Result<()> {
    ndjson::write(accounts, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::backtest::test_reports::{accounts, sample, style};

    #[test]
    fn an_output_is_a_form_and_maybe_a_file() {
        let output = |text: &str| text.parse::<BacktestOutput>().map_err(|error| error.to_string());
        let expected = BacktestOutput { form: BacktestForm::Html, path: Some("a=b.html".into()) };
        assert_eq!(output("html=a=b.html"), Ok(expected));
        assert_eq!(output("ndjson"), Ok(BacktestOutput { form: BacktestForm::Ndjson, path: None }));
        let unknown =
            "unknown form \"xml\": use one of table, wide, json, ndjson, csv, markdown, html";
        assert_eq!(output("xml"), Err(unknown.to_owned()));
        assert!(output("json=").expect_err("no file").contains("after json="));
    }

    #[test]
    fn every_form_ends_with_a_line_end() {
        for form in BacktestForm::iter() {
            let text = render(form, &sample(), &accounts(), &style(96)).expect("a form");
            assert!(text.ends_with('\n') && text.len() > 100, "{form}: {text}");
        }
    }
}

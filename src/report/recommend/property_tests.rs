//! Properties of all forms, checked on made-up reports.

use plimsoll_charts::svg::is_invisible;
use plimsoll_core::rightsizing::{report::Report, totals::without_recommendation};
use proptest::{prelude::*, sample::Index};
use strum::IntoEnumIterator as _;

use super::{
    Form, FormOptions,
    forms::RenderError,
    random_reports::{options, report, style, text},
    render,
    selection::{Selection, entries},
    test_reports::{sample, unicode},
    why,
};
use crate::report::style::Glyphs;

fn text_forms() -> impl Iterator<Item = Form> {
    let (report, style, options) = (sample(), unicode(96), FormOptions::default());
    Form::iter().filter(move |form| {
        !matches!(render(*form, &report, &style, &options), Err(RenderError::NotText(_)))
    })
}

/// The sum of all numbers after `and` and before `more containers`.
fn counted_rest(text: &str) -> usize {
    let words: Vec<&str> = text.split_whitespace().collect();
    let rests = words.windows(4).filter_map(|words| match words {
        ["and", number, "more", what] if what.starts_with("container") => {
            number.replace(',', "").parse::<usize>().ok()
        }
        _ => None,
    });
    rests.sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_form_fails_and_text_controls_no_terminal(
        report in report(),
        style in style(),
        options in options(),
    ) {
        for form in text_forms() {
            let text = render(form, &report, &style, &options);
            let text = text.unwrap_or_else(|error| panic!("{form}: {error}"));
            let is_structured = matches!(form, Form::Json | Form::Yaml | Form::Slack | Form::Sarif);
            let is_control =
                |c: char| c.is_control() && !matches!((c, form), ('\n', _) | ('\r', Form::Csv) | ('\t', Form::Tsv));
            if !is_structured {
                prop_assert!(!text.contains(is_control), "{form}: {text:?}");
                prop_assert!(!text.contains(is_invisible), "{form}: {text:?}");
            }
            if matches!(form, Form::Table | Form::Wide) && style.glyphs == Glyphs::Ascii {
                prop_assert!(text.is_ascii(), "{form}: {text:?}");
            }
        }
    }

    #[test]
    fn json_and_yaml_are_read_back_as_the_same_report(report in report(), style in style()) {
        let options = FormOptions::default();
        let json = render(Form::Json, &report, &style, &options).expect("JSON");
        prop_assert_eq!(&serde_json::from_str::<Report>(&json).expect("a report"), &report);
        let yaml = render(Form::Yaml, &report, &style, &options).expect("YAML");
        let read = serde_saphyr::from_str::<Report>(&yaml);
        prop_assert_eq!(&read.unwrap_or_else(|why| panic!("{why}: {yaml}")), &report);
    }

    #[test]
    fn csv_has_a_row_for_each_resource_of_each_container(report in report(), style in style()) {
        for (form, delimiter) in [(Form::Csv, b','), (Form::Tsv, b'\t')] {
            let text = render(form, &report, &style, &FormOptions::default()).expect("CSV");
            let mut reader =
                csv::ReaderBuilder::new().delimiter(delimiter).from_reader(text.as_bytes());
            let rows = reader.records().map(|row| row.expect("as many cells as the head"));
            let expected: usize = entries(&report).map(|entry| entry.container.resources.len()).sum();
            prop_assert_eq!(rows.count(), expected);
        }
    }

    #[test]
    fn every_container_is_shown_or_counted(report in report(), top in 0..6_usize) {
        let selection = Selection::new(&report, None);
        let all = entries(&report).count();
        let chosen = entries(&report).filter(|entry| {
            let is = |list: &[super::selection::Entry<'_>]| {
                list.iter().any(|other| std::ptr::eq(other.container, entry.container))
            };
            is(&selection.at_risk) || is(&selection.overprovisioned)
                || without_recommendation(entry.container).is_some()
        });
        prop_assert_eq!(chosen.count() + selection.others, all);
        let rest = |list: &[super::selection::Entry<'_>]| list.len().saturating_sub(top);
        let expected = rest(&selection.at_risk) + rest(&selection.overprovisioned);
        let options = FormOptions { top: Some(top), ..FormOptions::default() };
        let style = unicode(96);
        for form in [Form::Markdown, Form::Slack] {
            // Names could contain the words that are counted, so that only the rests of lists are.
            let text = render(form, &report, &style, &options).expect("text");
            let lines = text.lines().map(|line| line.trim().trim_start_matches("\"text\": \""));
            let rests = lines.filter(|line| line.starts_with("and "));
            let text = rests.collect::<Vec<_>>().join("\n").replace("\",", "");
            prop_assert_eq!(counted_rest(&text), expected, "{}: {}", form, text);
        }
        let wide = render(Form::Wide, &report, &style, &options).expect("text");
        prop_assert_eq!(counted_rest(wide.lines().last().unwrap_or_default()), all.saturating_sub(top));
    }

    #[test]
    fn why_finds_every_workload(
        report in report(),
        style in style(),
        any in text(),
        index in any::<Index>(),
    ) {
        let _ = why(&report, &any, &style);
        if !report.workloads.is_empty() {
            let workload = index.get(&report.workloads);
            let name = format!("{}/{}", workload.namespace, workload.name);
            let text = why(&report, &name, &style).unwrap_or_else(|error| panic!("{name:?}: {error}"));
            prop_assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
            prop_assert!(!text.contains(is_invisible), "{text:?}");
            if style.glyphs == Glyphs::Ascii {
                prop_assert!(text.is_ascii(), "{text:?}");
            }
            let error = why(&report, &format!("{name}?"), &style);
            if let Err(error) = error {
                prop_assert!(!error.to_string().contains(char::is_control));
            }
        }
    }
}

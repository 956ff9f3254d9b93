//! The charts: cost against risk, requested and used by day, and the distribution of slack.

use std::collections::HashMap;

use plimsoll_charts::{
    axis::{AxisOptions, TimeRange},
    color,
    histogram::{self, Histogram},
    legend::Legend,
    scatter::{self, Scatter, ScatterPoint},
    svg::Svg,
    time_series::{self, Line, LineShape, LineStyle, Mark, MarkShape, TimeSeries},
};
use plimsoll_core::{
    backtest::report::{BacktestReport, PolicyReport},
    types::Time,
};

use super::{Cell, open_section, write_details};
use crate::report::{
    backtest::words::{amount, is_yardstick},
    recommend::{
        amounts::{day, grouped},
        html::markup::Markup,
    },
};

const DAY_SECONDS: f64 = 86_400.0;

/// What policies cost.
fn cost(policy: &PolicyReport, has_prices: bool) -> f64 {
    if has_prices { policy.monthly_cost.unwrap_or(f64::NAN) } else { policy.cpu_requested }
}

fn cost_title(report: &BacktestReport) -> String {
    match &report.currency {
        Some(currency) => format!("{currency} a month"),
        None => "requested cores".to_owned(),
    }
}

/// A number of bad days, by policy.
type Risk = (&'static str, fn(&PolicyReport) -> u64);

/// Writes cost against OOM-days and against bad CPU days.
pub(super) fn write_frontier(page: &mut Markup, report: &BacktestReport) {
    open_section(page, "frontier", "Cost and risk");
    page.raw("<p>Left is cheaper, below is safer; the line joins the policies that no other beats. The vertical axis grows by ");
    page.raw("factors. The yardstick <code>oracle</code> is not judged and has no point.</p>\n<div class=\"figures large\">\n");
    let risks: [Risk; 2] =
        [("OOM-days", |policy| policy.oom_days), ("bad CPU days", |policy| policy.bad_cpu_days)];
    for risk in risks {
        write_scatter(page, report, risk);
    }
    page.raw("</div>\n</section>\n");
}

fn write_scatter(page: &mut Markup, report: &BacktestReport, (name, risk): Risk) {
    let has_prices = report.currency.is_some();
    let cost_title = cost_title(report);
    let judged: Vec<&PolicyReport> =
        report.policies.iter().filter(|policy| !is_yardstick(policy)).collect();
    let points: Vec<ScatterPoint> = judged
        .iter()
        .map(|policy| {
            let cost = cost(policy, has_prices);
            let is_on_frontier = policy.is_on_frontier == Some(true);
            let color = if is_on_frontier { color::TARGET } else { color::FAINT };
            ScatterPoint {
                name: policy.name.clone(),
                x: cost,
                y: risk(policy) as f64,
                color: color.to_owned(),
                title: format!(
                    "{}: {} {cost_title}, {} {name}",
                    policy.name,
                    amount(cost),
                    risk(policy)
                ),
            }
        })
        .collect();
    let places: HashMap<&str, usize> =
        judged.iter().enumerate().map(|(index, policy)| (&*policy.name, index)).collect();
    let joined: Vec<usize> =
        report.frontier.iter().filter_map(|step| places.get(&*step.policy).copied()).collect();
    let title = format!("{cost_title} against {name}");
    let names: Vec<&str> = report.frontier.iter().map(|step| &*step.policy).collect();
    let description = format!("Not beaten, from the cheapest: {}", names.join(", "));
    let mut svg = Svg::embedded(480.0, 320.0, &title, &description);
    let area = svg.area();
    let chart = Scatter {
        points: &points,
        joined: &joined,
        x_title: &cost_title,
        y_title: name,
        is_logarithmic: true,
    };
    scatter::draw(&mut svg, area, &chart);
    page.raw("<figure><figcaption>");
    page.text(&title);
    page.raw("</figcaption>\n");
    page.chart(svg);
    let rows: Vec<Vec<Cell>> = judged
        .iter()
        .map(|policy| {
            let cost = cost(policy, has_prices);
            vec![
                Cell::Text(policy.name.clone()),
                Cell::Number(Some(cost), amount(cost)),
                Cell::Number(Some(risk(policy) as f64), grouped(risk(policy) as f64, 0)),
            ]
        })
        .collect();
    write_details(page, &title, &["Policy", &cost_title, name], &rows);
    page.raw("</figure>\n");
}

fn seconds(time: Time) -> f64 {
    time.as_secs() as f64
}

/// Writes requested and used CPU by day, a chart for each policy, all with the same axis.
pub(super) fn write_days(page: &mut Markup, report: &BacktestReport) {
    open_section(page, "days", "By day");
    page.raw("<p>Mean of requested and used cores of each day. Crosses are days with OOM kills.</p>\n<div class=\"figures\">\n");
    let values = report.policies.iter().flat_map(|policy| &policy.days);
    let most = values.map(|day| day.cpu_requested.max(day.cpu_used)).fold(0.0, f64::max);
    for policy in report.policies.iter().filter(|policy| !policy.days.is_empty()) {
        write_policy_days(page, report, policy, most);
    }
    page.raw("</div>\n</section>\n");
}

fn write_policy_days(page: &mut Markup, report: &BacktestReport, policy: &PolicyReport, most: f64) {
    let line = |name: &str, color: &str, fill, points: Vec<(f64, f64)>| Line {
        name: name.to_owned(),
        points,
        color: color.to_owned(),
        style: LineStyle {
            shape: LineShape::Stepped,
            width: 1.5,
            fill_opacity: fill,
            ..LineStyle::default()
        },
        values: Vec::new(),
    };
    // The last day is drawn to its end.
    let stepped = |value: fn(&plimsoll_core::backtest::report::DayReport) -> f64| {
        let mut points: Vec<(f64, f64)> =
            policy.days.iter().map(|day| (seconds(day.day), value(day))).collect();
        let last = points.last().map(|(at, value)| (at + DAY_SECONDS, *value));
        points.extend(last);
        points
    };
    let lines = [
        line("requested", color::REQUEST, 0.35, stepped(|day| day.cpu_requested)),
        line("used", color::USAGE, 0.0, stepped(|day| day.cpu_used)),
    ];
    let killed = policy.days.iter().filter(|day| day.oom_kills > 0);
    let marks: Vec<Mark> = killed
        .map(|of| Mark {
            at: seconds(of.day) + DAY_SECONDS / 2.0,
            value: Some(of.cpu_requested),
            shape: MarkShape::Cross,
            color: color::SHORTFALL.to_owned(),
            title: format!("{}: {} OOM kills", day(of.day), of.oom_kills),
        })
        .collect();
    let axis = AxisOptions {
        unit: "none",
        min: Some(0.0),
        max: Some(most).filter(|most| *most > 0.0),
        whole: false,
    };
    let until = policy.days.last().map_or(report.until, |day| day.day);
    let range = TimeRange {
        from: policy.days.first().map_or(0.0, |day| seconds(day.day)),
        to: seconds(until) + DAY_SECONDS,
    };
    let title = format!("CPU by day under {}", policy.name);
    let description = format!(
        "{} cores requested on average, {} OOM kills",
        amount(policy.cpu_requested),
        policy.oom_kills
    );
    let mut svg = Svg::embedded(352.0, 170.0, &title, &description);
    let area = svg.area();
    let chart = TimeSeries {
        lines: &lines,
        marks: &marks,
        shaded: &[],
        axis,
        range,
        legend: &Legend::List,
    };
    time_series::draw(&mut svg, area, &chart);
    page.raw("<figure><figcaption>");
    page.text(&policy.name);
    page.raw("</figcaption>\n");
    page.chart(svg);
    let rows: Vec<Vec<Cell>> = policy
        .days
        .iter()
        .map(|of| {
            vec![
                Cell::Text(day(of.day)),
                Cell::Number(Some(of.cpu_requested), amount(of.cpu_requested)),
                Cell::Number(Some(of.cpu_used), amount(of.cpu_used)),
                Cell::Number(Some(of.memory_requested), amount(of.memory_requested)),
                Cell::Number(Some(of.oom_kills as f64), grouped(of.oom_kills as f64, 0)),
            ]
        })
        .collect();
    let headings = ["Day", "Requested, cores", "Used, cores", "Requested, GiB", "OOM kills"];
    write_details(page, &title, &headings, &rows);
    page.raw("</figure>\n");
}

/// A tenth of the histogram of slack.
fn tenth(index: usize) -> String {
    format!("{} to {} % slack", index * 10, index * 10 + 10)
}

/// Writes how many containers have how much slack, a chart for each policy.
pub(super) fn write_slack(page: &mut Markup, report: &BacktestReport) {
    open_section(page, "slack", "Slack");
    page.raw("<p>Containers by the share of their CPU request that is slack, in tenths.</p>\n<div class=\"figures\">\n");
    for policy in &report.policies {
        let title = format!("Containers by slack under {}", policy.name);
        let containers: u64 = policy.slack_histogram.iter().map(|count| u64::from(*count)).sum();
        let mut svg = Svg::embedded(352.0, 110.0, &title, &format!("{containers} containers"));
        let area = svg.area();
        let counts = &*policy.slack_histogram;
        let chart = Histogram { counts, ends: ("0 %", "100 % slack"), class: tenth };
        histogram::draw(&mut svg, area, &chart);
        page.raw("<figure><figcaption>");
        page.text(&policy.name);
        page.raw("</figcaption>\n");
        page.chart(svg);
        let rows: Vec<Vec<Cell>> = counts
            .iter()
            .enumerate()
            .map(|(index, count)| {
                let count = f64::from(*count);
                vec![Cell::Text(tenth(index)), Cell::Number(Some(count), grouped(count, 0))]
            })
            .collect();
        write_details(page, &title, &["Slack", "Containers"], &rows);
        page.raw("</figure>\n");
    }
    page.raw("</div>\n</section>\n");
}

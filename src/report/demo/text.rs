//! The report as text, readable in 80 columns, without colours and in a pipe.

use super::{
    report::{BothScenarios, DemoReport},
    scenario_run::Config,
    sparklines::render_sparklines,
    tables::{recommendations, render_scenarios, rows},
};
pub use crate::report::style::Style;
use crate::report::style::{BOLD, DIM, Page, wrap};

/// The introduction that is printed before the simulation starts.
pub fn opening(config: &Config, style: &Style) -> String {
    let mut page = Page::new(style);
    let Config { seed, days, .. } = config;
    let days =
        if *days == 1 { "one virtual day".to_owned() } else { format!("{days} virtual days") };
    page.line(format_args!(
        "{}",
        page.paint(BOLD, &format!("Plimsoll demo: {days}, simulated twice (seed {seed})"))
    ));
    page.line("The load is synthetic; the recommender, its history and its storage are real.");
    page.line("One run has no recommendations, the other applies them.");
    page.finish()
}

pub fn outcome(report: &DemoReport, style: &Style) -> String {
    let mut page = Page::new(style);
    render_scenarios(&mut page, report);
    recommendations(&mut page, report);
    render_sparklines(&mut page, report);
    remarks(&mut page, report);
    next(&mut page);
    page.finish()
}

fn remarks(page: &mut Page<'_>, report: &DemoReport) {
    page.heading("SUMMARY", "");
    let mut remark = |text: &str| {
        let bullet = page.choose_glyphs("•", "-");
        for (index, line) in wrap(text, page.width.min(96) - 4).iter().enumerate() {
            page.line(format_args!("  {} {line}", if index == 0 { bullet } else { " " }));
        }
    };
    remark(&summary(report));
    let more: Vec<String> = report
        .containers
        .iter()
        .filter_map(|container| Some((container, container.recommendation.as_ref()?)))
        .flat_map(|(container, recommended)| {
            rows(container, recommended).into_iter().map(|row| (container.container.clone(), row))
        })
        .filter(|(_, row)| row.change > 0.0)
        .map(|(name, row)| {
            format!("{name} {} {} instead of {}", row.resource, row.target, row.request)
        })
        .collect();
    if !more.is_empty() {
        remark(&format!("Requests are raised where they were too low: {}.", more.join("; ")));
    }
    for container in &report.containers {
        let BothScenarios { without, with } = &container.lives;
        if with.oom_kills > 0 {
            remark(&format!(
                "{} was OOM-killed {} without, {} with{}: {}",
                container.container,
                times(without.oom_kills),
                times(with.oom_kills),
                match with.replaced_pods {
                    0 => String::new(),
                    1 => ", where one of its pods was replaced".to_owned(),
                    pods => format!(", where {pods} of its pods were replaced"),
                },
                if without.oom_kills > with.oom_kills {
                    "more memory and a new pod delay OOM kills, but do not fix a leak."
                } else {
                    "its recommendation is too low."
                }
            ));
        }
    }
    remark(
        "Pods were replaced by a simplified updater: it raises requests at once, and lowers them \
         when a pod is a day old. The next run of a job starts with the target. Limits keep \
         their ratio to the requests.",
    );
    remark(&report.both_autoscalers.summary());
    remark("Throttled minutes are counted separately for each container.");
    for restart in &report.history.restarts {
        remark(&format!(
            "Halfway through, the recommender was replaced by a new one that loaded the {} store ({} saves \
             in total): {} of {} recommendations were identical.",
            report.history.backend, report.history.saves, restart.unchanged, restart.compared
        ));
    }
}

fn summary(report: &DemoReport) -> String {
    let BothScenarios { without, with } = &report.lives;
    let requested = |resource: &str, without: f64, with: f64| {
        let word = if with <= without { "less" } else { "more" };
        let change = if without > 0.0 { (with - without).abs() * 100.0 / without } else { 0.0 };
        format!("{change:.0} % {word} {resource}")
    };
    let kills = match (without.oom_kills, with.oom_kills) {
        (0, 0) => "no container is OOM-killed in either run".to_owned(),
        (without, with) => {
            format!("containers are OOM-killed {} instead of {}", times(with), times(without))
        }
    };
    format!(
        "With recommendations {} and {} are requested; {kills}.",
        requested("CPU", without.core_hours(), with.core_hours()),
        requested("memory", without.gib_hours(), with.gib_hours()),
    )
}

fn next(page: &mut Page<'_>) {
    page.heading("NEXT", "");
    let command = page.command.clone();
    for (arguments, description) in [
        ("demo --seed 7", "another load"),
        ("demo --days 30", "a longer simulation"),
        ("demo --output json", "the report as JSON, with reasons"),
        ("crds", "the CustomResourceDefinitions"),
        ("--help", "all commands"),
    ] {
        page.line(format_args!(
            "  {:<44}{}",
            format!("{command} {arguments}"),
            page.paint(DIM, description)
        ));
    }
}

fn times(count: i64) -> String {
    match count {
        0 => "never".to_owned(),
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        more => format!("{more} times"),
    }
}

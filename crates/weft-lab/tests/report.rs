//! Tests of report pages: complete, self-contained and safe with any content.

use proptest::prelude::*;
use weft_lab::experiment::{Effort, Experiment, Outcome, Size};
use weft_lab::report::{
    Axis, Bars, Block, Cell, Group, Lines, Mark, Report, Section, Series, Setting, Sweep, Table,
    Value,
};
use weft_lab::statistics::{Estimate, Verdict};

/// Checks a page with a strict XML parser: it contains no scripts, no external resources, and no
/// text in place of numbers. Returns the number of elements.
fn check(page: &str) -> Result<usize, String> {
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let document = roxmltree::Document::parse_with_options(page, options);
    let document = document.map_err(|error| error.to_string())?;
    let mut ids = std::collections::BTreeSet::new();
    let mut count = 0;
    for element in document.descendants().filter(roxmltree::Node::is_element) {
        count += 1;
        let name = element.tag_name().name();
        if matches!(
            name,
            "a" | "audio"
                | "base"
                | "iframe"
                | "image"
                | "img"
                | "link"
                | "object"
                | "script"
                | "use"
        ) {
            return Err(format!("<{name}>"));
        }
        for attribute in element.attributes() {
            let (key, value) = (attribute.name(), attribute.value());
            let text = matches!(key, "class" | "content" | "aria-labelledby" | "data-label");
            let bad = ["NaN", "inf", "http", "javascript", "url("];
            if key.starts_with("on")
                || matches!(key, "href" | "src" | "srcset" | "style")
                || (!text && bad.iter().any(|bad| value.contains(bad)))
            {
                return Err(format!("{key}={value} in <{name}>"));
            }
            if key == "id" && !ids.insert(value.to_owned()) {
                return Err(format!("id {value} twice"));
            }
        }
    }
    Ok(count)
}

fn page_of(block: Block) -> String {
    let section = Section { title: "<s>".to_owned(), blocks: vec![block] };
    Report { title: "t".to_owned(), sections: vec![section], ..Report::default() }.html()
}

fn group(label: &str, values: &[f64]) -> Group {
    let values = values
        .iter()
        .map(|value| Some(Value { value: *value, interval: Some((value - 0.1, value + 0.1)) }));
    Group {
        label: label.to_owned(),
        values: values.collect(),
        band: Some((1.0, 1.5)),
        ..Group::default()
    }
}

#[test]
fn the_checker_finds_planted_faults() {
    let good = page_of(Block::Text("a".to_owned()));
    assert!(check(&good).is_ok());
    for (from, to) in [
        ("</p>", ""),
        ("<p>", "<p><b>"),
        ("<p>", "<p onclick=\"x\">"),
        ("<p>", "<p><img src=\"http://x\"/>"),
        ("<p>", "<p width=\"NaN%\">"),
        ("<p>", "<p id=\"a\">1</p><p id=\"a\">"),
        ("<p>", "<p><script>1</script>"),
        ("<p>", "<p>&nbsp;"),
    ] {
        assert!(check(&good.replace(from, to)).is_err(), "{to}");
    }
}

#[test]
fn a_series_may_be_called_as_a_number_is_that_is_none() {
    let bars = Bars {
        series: vec!["NaN".to_owned(), "inf".to_owned()],
        groups: vec![group("a", &[1.0, 2.0])],
        ..Bars::default()
    };
    let page = page_of(Block::Bars(bars));
    assert!(page.contains("data-label=\"NaN\""), "a heading is in an attribute");
    assert!(check(&page).is_ok(), "{:?}", check(&page));
    assert!(check(&page.replace("width=\"100%\"", "width=\"NaN\"")).is_err());
}

#[test]
fn text_cannot_become_markup() {
    let evil = "</p><script>alert(1)</script>\"'&\u{0}";
    let owned = evil.to_owned();
    let bars = Bars {
        title: owned.clone(),
        description: owned.clone(),
        unit: owned.clone(),
        series: vec![owned.clone()],
        reference: None,
        groups: vec![group(evil, &[1.0])],
    };
    let lines = Lines {
        title: owned.clone(),
        description: owned.clone(),
        across: owned.clone(),
        up: owned.clone(),
        axis: Axis::Names(vec![owned.clone()]),
        logarithmic: false,
        baseline: false,
        marks: vec![Mark { value: 1.0, label: owned.clone() }],
        series: vec![Series { name: owned.clone(), points: vec![(0.0, Value::exact(1.0))] }],
    };
    let table = Table {
        caption: owned.clone(),
        columns: vec![owned.clone(), owned.clone()],
        rows: vec![vec![Cell::Text(owned.clone()), Cell::Number(owned.clone())]],
    };
    let blocks = vec![
        Block::Text(owned.clone()),
        Block::List(vec![owned.clone()]),
        Block::Bars(bars),
        Block::Lines(lines),
        Block::Table(table),
    ];
    let page = Report {
        title: owned.clone(),
        summary: owned.clone(),
        facts: vec![(owned.clone(), owned.clone())],
        sections: vec![Section { title: owned, blocks }],
    }
    .html();
    assert!(check(&page).unwrap() > 60);
    assert!(!page.contains("<script") && !page.contains('\u{0}'));
    assert_eq!(page.matches("&lt;script&gt;").count(), page.matches("alert(1)").count());
}

#[test]
fn a_page_fetches_nothing_and_each_chart_says_what_it_shows() {
    let bars = Bars {
        title: "first".to_owned(),
        groups: vec![group("g", &[1.2, 1.3])],
        ..Bars::default()
    };
    let sections = vec![Section {
        title: "s".to_owned(),
        blocks: vec![
            Block::Bars(bars.clone()),
            Block::Bars(Bars { title: "second".to_owned(), ..bars }),
        ],
    }];
    let page = Report { title: "t".to_owned(), sections, ..Report::default() }.html();
    for reference in ["src=", "href=", "url(", "@import", "<script", "<link"] {
        assert!(!page.contains(reference), "{reference}");
    }
    assert!(page.contains("prefers-color-scheme: dark") && page.contains("width=device-width"));
    for (chart, title) in [(1, "first"), (2, "second")] {
        assert!(page.contains(&format!("aria-labelledby=\"t{chart} d{chart}\"")));
        assert!(page.contains(&format!("<title id=\"t{chart}\">{title}</title>")));
        assert_eq!(page.matches(&format!("id=\"d{chart}\"")).count(), 1);
    }
    assert!(page.contains("1.2 [1.1, 1.3]"), "the numbers stand below the chart");
}

#[test]
fn bars_are_as_long_as_their_values() {
    let mut chart = Bars { groups: vec![group("g", &[1.0, 2.0])], ..Bars::default() };
    chart.groups[0].values[0] = Some(Value::exact(1.0));
    chart.groups[0].values[1] = Some(Value::exact(2.0));
    chart.groups[0].band = None;
    let page = page_of(Block::Bars(chart));
    // The longest bar ends at 80 %.
    assert!(page.contains("class=\"f0\" x=\"0\" width=\"40.00%\""));
    assert!(page.contains("class=\"f1\" x=\"0\" width=\"80.00%\""));
}

#[test]
fn verdicts_are_words_and_estimates_are_values() {
    let all = [
        Verdict::Agrees,
        Verdict::AgreesOtherwise,
        Verdict::Direction,
        Verdict::Undecided,
        Verdict::Differs,
    ];
    let rows = all.map(|v| vec![Cell::Verdict(v)]);
    let table =
        Table { caption: String::new(), columns: vec!["v".to_owned()], rows: rows.to_vec() };
    let page = page_of(Block::Table(table));
    for word in ["agrees", "agrees-otherwise", "direction", "undecided", "differs"] {
        assert!(
            page.contains(&format!("class=\"verdict {word}\""))
                && page.contains(&format!("</span> {word}</span>"))
        );
    }
    let estimate = Estimate { value: 1.3, low: 1.2, high: 1.4, count: 10 };
    assert_eq!(Value::from(estimate), Value { value: 1.3, interval: Some((1.2, 1.4)) });
}

fn any_value() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        Just(0.0),
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::MIN_POSITIVE),
        Just(f64::MAX),
        -10.0..10.0,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_values_a_page_is_whole(
        values in proptest::collection::vec((any_value(), any_value(), any_value()), 0..8),
        reference in proptest::option::of(any_value()),
        logarithmic in any::<bool>(),
        axis in 0usize..3,
        text in "\\PC{0,12}",
    ) {
        let value = |(value, low, high): &(f64, f64, f64)| -> Value {
            Value { value: *value, interval: Some((*low, *high)) }
        };
        let bars = Bars {
            title: text.clone(),
            reference,
            series: vec![text.clone()],
            groups: values.iter().map(|v| Group { label: text.clone(), values: vec![Some(value(v)), None],
                band: Some((v.1, v.2)), runs: vec![vec![v.1], vec![v.0, v.2]] }).collect(),
            ..Bars::default()
        };
        prop_assert!(check(&page_of(Block::Bars(bars))).is_ok());
        let axis = [Axis::Names(vec![text.clone()]), Axis::Linear, Axis::Doubling][axis].clone();
        let lines = Lines {
            title: text.clone(), description: text.clone(), across: text.clone(), up: text.clone(), axis, logarithmic,
            baseline: logarithmic,
            marks: reference.map(|value| Mark { value, label: text.clone() }).into_iter().collect(),
            series: vec![Series { name: text, points: values.iter().map(|v| (v.1, value(v))).collect() }],
        };
        let page = page_of(Block::Lines(lines));
        let checked = check(&page);
        prop_assert!(checked.is_ok(), "{:?}", checked);
    }
}

#[test]
fn a_sweep_shows_each_setting_and_each_percentile() {
    let ms = |value: f64| Value { value, interval: Some((value * 0.9, value * 1.1)) };
    let setting = |name: &str, rate: f64| Setting {
        name: name.to_owned(),
        throughput: Value { value: rate, interval: Some((rate - 1.0, rate + 1.0)) },
        runs: vec![rate - 0.5, rate, rate + 0.5],
        operations: Some(Value::exact(rate * 256.0)),
        mean: Some(ms(10.0 / rate)),
        percentiles: [(50.0, 8.0), (99.0, 40.0), (99.9, 90.0)]
            .map(|(p, v)| (p, ms(v / rate)))
            .to_vec(),
        remark: if rate > 100.0 { "best".to_owned() } else { String::new() },
    };
    let sweep = Sweep {
        title: "random.fio on 4 × ssd".to_owned(),
        knob: "stripe_size".to_owned(),
        settings: vec![setting("64K", 15.0), setting("4K", 100.0), setting("auto", 105.0)],
        assumptions: vec!["Nothing else uses the disks.".to_owned()],
        ..Sweep::default()
    };
    let page = sweep.report().html();
    check(&page).unwrap();
    for told in
        ["64K", "4K", "auto", "50 %", "99 %", "99.9 %", "105 [104, 106]", "best", "Nothing else"]
    {
        assert!(page.contains(told), "{told}");
    }
    let named = "<td data-label=\"stripe_size\">auto <small>best</small></td>";
    let value =
        "<td class=\"n\" data-label=\"MB/s\"><span>105 <small>[104, 106]</small></span></td>";
    assert!(page.contains(named) && page.contains(value), "a note of a cell is beneath it");
    assert!(page.contains("14.5 15 15.5"), "single runs are told");
    // Single runs are points on the bar: one left of its end, one right of it.
    assert_eq!(page.matches("class=\"run\"").count(), 9 + 1, "and one in the legend");
    // An empty sweep has no ratio to show, but still gives a page.
    check(&Sweep::default().report().html()).unwrap();
}

#[test]
fn long_lines_have_no_points_and_few_numbers() {
    let points = |count: u32| {
        (0..count).map(|at| (f64::from(at), Value::exact(f64::from(at % 7)))).collect()
    };
    let chart = |count| Lines {
        series: vec![Series { name: "hold".to_owned(), points: points(count) }],
        marks: vec![Mark { value: 9.0, label: "published".to_owned() }],
        ..Lines::default()
    };
    let (short, long) = (page_of(Block::Lines(chart(30))), page_of(Block::Lines(chart(900))));
    let rows = |page: &str| page.matches("<tr>").count();
    assert_eq!((rows(&short), short.matches("r=\"3.5\"").count()), (31, 31));
    assert!(rows(&long) <= 41 && long.matches("r=\"3.5\"").count() == 1);
    assert!(long.contains(", one in 23"));
    // The mark is on the plot although no point reaches it.
    assert!(short.contains(">published</text>") && short.contains(">10</text>"));
}

/// Text with one row of every kind, in short runs.
const TINY: &str = r#"
patch = "t00"
name = "tiny"
published_by = "a < b & c"
assumptions = ["Disks are round.", "<b>Nothing</b> else is."]

[machine]
level = "raid5"
members = 4
model = "hdd-2007-7200"
chunk_kib = 64
memory_mib = 256
cpus = 1
kernel = "2.6.24"
costs = "zero"
knobs = ["activation=at_unplug", "stripe_cache_form=2008", "writes=gather"]

[column.baseline]
about = "large stripes"
knobs = ["stripe_size=65536"]

[column.patched]
about = "small stripes"
knobs = ["stripe_size=4096"]

[column.own]
about = "weft's"
knobs = ["stripe_size=8192"]

[control]
case = "dd"
off = []
placebo = { turn_ns = 1 }

[[case]]
name = "dd"
load = { kind = "dd", block_kib = 1024, count = { quick = 24, default = 24, full = 24 } }

[[case]]
name = "fio-x0"
costs_times = 0
load = { kind = "fio", pattern = "random", block_kib = 4, clones = 2, depth = 4, seconds = { quick = 1, default = 1, full = 1 } }

[[case]]
name = "fio-x2"
costs_times = 2
load = { kind = "fio", pattern = "random", block_kib = 4, clones = 2, depth = 4, seconds = { quick = 1, default = 1, full = 1 } }

[[case]]
name = "isolated"
load = { kind = "isolated", block_kib = 4, count = { quick = 4, default = 4, full = 4 } }

[[row]]
experiment = "dd"
case = "in one go"
of = "dd"
kind = "magnitude"
published = { gain_pct = 900.0 }
band = [9.0, 11.0]
reason = "no model could <expect> it"

[[row]]
experiment = "fio"
case = "4 KiB"
of = "fio-x0"
kind = "direction"
beyond = "own"
curve = "4 KiB by cost"
published = { baseline = 10.0, patched = 7.0 }
band = "above"
note = "it is the <cache> that does it"

[[row]]
experiment = "fio"
case = "costs lose nothing"
of = "fio-x2"
against = "fio-x0"
kind = "direction"
published = {}
band = "above"

[[row]]
experiment = "fio"
case = "isolated, member KiB"
of = "isolated"
metric = "member_kib_per_write"
kind = "mechanism"
exact = true
published = { baseline = 256.0, patched = 16.0 }
band = [0.0625, 0.0625]
"#;

/// Checks that a page has each figure with its verdict, and each reason.
fn holds_all(page: &str, found: &Outcome) -> Result<(), String> {
    let text: String = {
        let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
        let document = roxmltree::Document::parse_with_options(page, options).unwrap();
        let rows = document.descendants().filter(|node| node.has_tag_name("tr"));
        let cells = rows.map(|row| {
            let cells = row.children().filter(|cell| cell.has_tag_name("td"));
            let text = |cell: roxmltree::Node<'_, '_>| {
                cell.descendants()
                    .filter(roxmltree::Node::is_text)
                    .filter_map(|node| node.text())
                    .collect::<String>()
            };
            cells.map(text).collect::<Vec<_>>().join("|")
        });
        let points = document.descendants().filter(|node| node.has_tag_name("li"));
        let points = points.filter_map(|point| point.text()).map(str::to_owned);
        cells.chain(points).collect::<Vec<_>>().join("\n")
    };
    for row in &found.rows {
        let begins = format!("{}|", row.row);
        // Charts contain the row as well, without a verdict.
        let is_judged = |line: &&str| line.contains(['✓', '≈', '✗', '↗', '?']);
        let mut lines = text.lines().filter(|line| line.starts_with(&begins));
        let line = lines.find(is_judged);
        let line = line.ok_or_else(|| format!("{} is not there", row.row))?;
        let word = row.verdict().unwrap().word();
        if !line.contains(word) {
            return Err(format!("{line}: expected {word}"));
        }
        if !row.reason().is_empty() && !text.contains(&format!("{}: {}", row.row, row.reason())) {
            return Err(format!("{}: no reason", row.row));
        }
    }
    for (row, note) in found.notes() {
        if !text.contains(&format!("{row}: {note}")) {
            return Err(format!("{row}: no note"));
        }
    }
    Ok(())
}

#[test]
fn a_page_of_an_experiment_holds_every_figure_and_the_charts_that_say_why() {
    let known = Experiment::of(TINY).unwrap();
    let effort = Effort { runs: 10, seed: 3, size: Size::Quick };
    let found = known.run(effort, &|_, _| ()).unwrap();
    let controls = [known.controls(effort, &|_, _| ()).unwrap()];
    assert!(!controls[0].is_empty());
    let experiments = [known];
    let page = |found: &Outcome| {
        Report::reproduced(&experiments, std::slice::from_ref(found), &controls, effort).html()
    };
    let whole = page(&found);
    check(&whole).unwrap();
    holds_all(&whole, &found).unwrap();
    for told in [
        "Patch t00 (tiny), reproduced",
        &format!("SHA-256 {}", experiments[0].hash),
        "&lt;b&gt;Nothing&lt;/b&gt; else is.",
        "a &lt; b &amp; c",
        "first seed",
        "CPU costs, t00",
        "Nothing is fitted",
        "Controls: is it the patch",
        "weft's own, against the better of before and with it",
        // Section on the mechanism.
        "Exactly: member KiB per write",
        "Read for each MiB written: dd",
        "99.9 % of prereads waited up to: dd",
        "4 KiB by cost",
        "published: 0.7",
        "Length of the delayed list: dd",
        "How long stripes waited before they were read: dd",
        "Did waiting pay off?",
        "Size of reads that reach the disks: fio-x0",
        "Size of writes that reach the disks: dd",
        // Section on other measurements.
        "Throughput: fio-x0, fio-x2",
    ] {
        assert!(whole.contains(told), "{told}");
    }
    // Each run of each drawn figure is printed as a number.
    let ratio = found.rows[0].patched.runs[1] / found.rows[0].baseline.runs[1];
    assert!(whole.contains(&weft_lab::report::number(ratio)), "{ratio}");
    assert_eq!(found.rows[3].verdict(), Some(Verdict::Agrees), "256 KiB and 16 KiB, exactly");

    // A page without a figure, or with another verdict, is detected.
    let mut less = found.clone();
    less.rows.remove(1);
    assert!(holds_all(&page(&less), &found).unwrap_err().contains("is not there"));
    let mut other = found.clone();
    other.rows[0].judged = Verdict::Agrees;
    let verdict = found.rows[0].judged;
    assert_ne!(verdict, Verdict::Agrees);
    let expected = format!("expected {}", verdict.word());
    assert!(holds_all(&page(&other), &found).unwrap_err().contains(&expected));
    // The same runs give the same page.
    assert_eq!(page(&found.clone()), whole);
    // With nine runs, one less than a verdict needs, the page has the figures and no verdict, and
    // states the number of runs that verdicts need.
    let nine = experiments[0].run(Effort { runs: 9, ..effort }, &|_, _| ()).unwrap();
    let page = page(&nine);
    check(&page).unwrap();
    assert!(whole.contains("class=\"verdict ") && !whole.contains("verdicts need"));
    assert!(!page.contains("class=\"verdict ") && !page.contains("no model could"));
    assert!(page.contains("Verdicts need 10 runs: --runs 10."));
    assert!(nine.rows.iter().all(|row| page.contains(&format!(">{}</td>", row.row))));
}

#[test]
fn a_line_without_points_is_not_named_and_keeps_its_colour() {
    let series = |name: &str, points: &[f64]| Series {
        name: name.to_owned(),
        points: points.iter().map(|at| (*at, Value::exact(*at))).collect(),
    };
    let page = page_of(Block::Lines(Lines {
        baseline: true,
        series: vec![
            series("first", &[1.0, 2.0]),
            series("left out", &[]),
            series("third", &[1.0]),
        ],
        ..Lines::default()
    }));
    check(&page).unwrap();
    assert!(page.contains("first") && page.contains("third") && !page.contains("left out"));
    let coloured = |colour: &str| page.contains(&format!("<circle class=\"{colour}\""));
    assert_eq!(["f0", "f1", "f2"].map(coloured), [true, false, true]);
}

/// Number of points of each line in a chart, by the chart's title.
fn points_of(page: &str, title: &str) -> Vec<usize> {
    let charts = page.split("<title id=").skip(1);
    let chart = charts.filter(|chart| chart.contains(&format!(">{title}</title>"))).last();
    let lines = chart.map_or("", |chart| chart).split("<polyline ").skip(1);
    let points = lines.filter_map(|line| line.split("points=\"").nth(1)?.split('"').next());
    points.map(|points| points.split(' ').count()).collect()
}

#[test]
fn a_page_of_001_draws_dirty_pages_pools_disks_and_waits_before_with_it_and_with_weft_s_own() {
    let experiments = [Experiment::named("001").unwrap().only("waits, 100M-xfs-10dd")];
    let effort = Effort { runs: 2, seed: 3, size: Size::Quick };
    let mut found = experiments[0].run(effort, &|_, _| ()).unwrap();
    let page = |found: &Outcome| {
        Report::reproduced(&experiments, std::slice::from_ref(found), &[], effort).html()
    };
    let whole = page(&found);
    check(&whole).unwrap();
    // 9 s of samples, one every 100 ms; four quantiles of the waits; ten disks.
    let charts = [
        ("Dirty pages", 90),
        ("Disks that have work", 90),
        ("Longest wait of any writer", 90),
        ("How long writers waited", 4),
    ];
    for case in ["one-100M-xfs-10dd", "jbod-100M-xfs-10dd"] {
        for (chart, points) in charts {
            assert_eq!(points_of(&whole, &format!("{chart}: {case}")), [points; 3], "{chart}");
        }
    }
    assert_eq!(points_of(&whole, "Pools of the disks: jbod-100M-xfs-10dd"), [10; 3]);
    assert_eq!(points_of(&whole, "Pools of the disks: one-100M-xfs-10dd"), [0; 0]);
    for told in ["limit: 100 MiB", "setpoint of the patch: ", "a writer's longest wait"] {
        assert!(whole.contains(told), "{told}");
    }
    // A column without samples is not drawn, and a case without any has no chart.
    for case in &mut found.cases {
        for sample in case.columns.get_mut("weft").unwrap() {
            sample.parts[0].pool = None;
        }
    }
    let title = "Dirty pages: one-100M-xfs-10dd";
    assert_eq!(points_of(&page(&found), title), [90; 2]);
    found.cases.clear();
    assert!(!page(&found).contains(title));
}

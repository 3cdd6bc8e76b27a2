//! Is a page whole, self-contained and safe, whatever it is made of?

use proptest::prelude::*;
use weft_lab::report::{
    Axis, Bars, Block, Cell, Group, Lines, Report, Section, Series, Table, Value,
};
use weft_lab::statistics::{Estimate, Verdict};

/// Every element is closed by its own end, in order, and no attribute holds what is no number where one
/// belongs. Returns the number of elements.
fn check(page: &str) -> Result<usize, String> {
    let mut open: Vec<String> = Vec::new();
    let mut count = 0;
    let style = page.find("<style>").unwrap()..page.find("</style>").unwrap();
    let mut at = page.find("<html").ok_or("no html")?;
    while let Some(next) = page[at..].find('<').map(|found| at + found) {
        if style.contains(&next) && page[next..].starts_with("<style>") {
            at = style.end + "</style>".len();
            continue;
        }
        let end =
            page[next..].find('>').map(|found| next + found).ok_or("an open tag at the end")?;
        let tag = &page[next + 1..end];
        at = end + 1;
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop().as_deref() != Some(name) {
                return Err(format!("</{name}> closes nothing"));
            }
        } else {
            count += 1;
            for bad in ["NaN", "inf", "http", "javascript", " on"] {
                if tag.contains(bad) {
                    return Err(format!("{bad} in <{tag}>"));
                }
            }
            let name = tag.split_whitespace().next().unwrap_or_default().trim_end_matches('/');
            if !tag.ends_with('/') {
                open.push(name.to_owned());
            }
        }
    }
    if open.is_empty() { Ok(count) } else { Err(format!("{open:?} stay open")) }
}

fn page_of(block: Block) -> String {
    let section = Section { title: "<s>".to_owned(), blocks: vec![block] };
    Report { title: "t".to_owned(), sections: vec![section], ..Report::default() }.html()
}

fn group(label: &str, values: &[f64]) -> Group {
    let values = values
        .iter()
        .map(|value| Some(Value { value: *value, interval: Some((value - 0.1, value + 0.1)) }));
    Group { label: label.to_owned(), values: values.collect(), band: Some((1.0, 1.5)) }
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
    ] {
        assert!(check(&good.replace(from, to)).is_err(), "{to}");
    }
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
    // The longest ends at 80 %.
    assert!(page.contains("class=\"f0\" x=\"0\" width=\"40.00%\""));
    assert!(page.contains("class=\"f1\" x=\"0\" width=\"80.00%\""));
}

#[test]
fn verdicts_are_words_and_estimates_are_values() {
    let rows =
        [Verdict::Agrees, Verdict::Direction, Verdict::Differs].map(|v| vec![Cell::Verdict(v)]);
    let table =
        Table { caption: String::new(), columns: vec!["v".to_owned()], rows: rows.to_vec() };
    let page = page_of(Block::Table(table));
    for word in ["agrees", "direction", "differs"] {
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
                band: Some((v.1, v.2)) }).collect(),
            ..Bars::default()
        };
        prop_assert!(check(&page_of(Block::Bars(bars))).is_ok());
        let axis = [Axis::Names(vec![text.clone()]), Axis::Linear, Axis::Doubling][axis].clone();
        let lines = Lines {
            title: text.clone(), description: text.clone(), across: text.clone(), up: text.clone(), axis, logarithmic,
            series: vec![Series { name: text, points: values.iter().map(|v| (v.1, value(v))).collect() }],
        };
        let page = page_of(Block::Lines(lines));
        let checked = check(&page);
        prop_assert!(checked.is_ok(), "{:?}", checked);
    }
}

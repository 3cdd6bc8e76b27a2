//! Style sheet of reports.

/// Number of colours for series.
pub(super) const COLOURS: usize = 8;

/// The style sheet. Its colours of series can be told apart in light and dark and by colour-blind
/// readers (after Okabe and Ito); lines also differ in their dashes, and bars in their order and
/// numbers.
pub(super) const SHEET: &str = r#"
:root {
  color-scheme: light dark;
  --page: #ffffff; --ink: #1c2128; --soft: #59636e; --rule: #d5dae0; --raised: #f4f6f8;
  --good: #17723a; --fair: #8a5a00; --poor: #b42318;
  --s0: #8c959f; --s1: #0b6bcb; --s2: #c2570c; --s3: #0f8a6d; --s4: #9a4fb3; --s5: #8f6a1a; --s6: #c2326f; --s7: #4a5a9e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12161b; --ink: #e3e8ee; --soft: #9aa6b2; --rule: #333c47; --raised: #1b2129;
    --good: #5ac786; --fair: #e0ad4a; --poor: #f58a7d;
    --s0: #7f8995; --s1: #5aa9f5; --s2: #f0914d; --s3: #46c7a4; --s4: #c98be0; --s5: #dcb45f; --s6: #f07aa8; --s7: #9aa8ee;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.55 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 54rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1, h2, p, li, figcaption { overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: .5rem 0; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .6rem; padding-top: .9rem; border-top: 1px solid var(--rule); }
.summary { font-size: 1.08rem; }
dl.facts { display: grid; grid-template-columns: fit-content(50%) minmax(0, 1fr); gap: .15rem 1rem; margin: 1rem 0; font-size: .88rem; }
dl.facts dt, dl.facts dd { overflow-wrap: anywhere; }
dl.facts dt { color: var(--soft); }
dl.facts dd { margin: 0; }
figure { margin: 1.6rem 0; }
figcaption { font-weight: 600; margin-bottom: .1rem; }
figure p.description { margin: 0 0 .5rem; color: var(--soft); font-size: .9rem; }
ul.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .15rem 1.2rem; margin: .3rem 0 .4rem; padding: 0; font-size: .86rem; }
ul.legend li { display: flex; align-items: center; gap: .4rem; }
ul.legend svg { width: 26px; height: 12px; flex: none; }
svg { display: block; overflow: visible; }
svg text { fill: var(--ink); font-size: 13px; }
svg text.soft { fill: var(--soft); font-size: 12px; }
.grid { stroke: var(--rule); }
.mark { stroke: var(--ink); stroke-dasharray: 4 3; }
.band { fill: var(--good); fill-opacity: .14; }
.whisker { stroke: var(--ink); stroke-width: 1.5; }
.run { fill: var(--page); stroke: var(--ink); stroke-width: 1; }
.line { fill: none; stroke-width: 2; }
.f0 { fill: var(--s0); } .f1 { fill: var(--s1); } .f2 { fill: var(--s2); }
.f3 { fill: var(--s3); } .f4 { fill: var(--s4); } .f5 { fill: var(--s5); }
.f6 { fill: var(--s6); } .f7 { fill: var(--s7); }
.l0 { stroke: var(--s0); } .l1 { stroke: var(--s1); } .l2 { stroke: var(--s2); }
.l3 { stroke: var(--s3); } .l4 { stroke: var(--s4); } .l5 { stroke: var(--s5); }
.l6 { stroke: var(--s6); } .l7 { stroke: var(--s7); }
.long { stroke-width: 1.4; }
.l1, .l4 { stroke-dasharray: none; } .l0 { stroke-dasharray: 2 3; } .l2 { stroke-dasharray: 8 3; }
.l3 { stroke-dasharray: 8 3 2 3; } .l5 { stroke-dasharray: 4 4; }
.l6 { stroke-dasharray: 12 3; } .l7 { stroke-dasharray: 3 2 3 6; }
.wide { overflow-x: auto; }
pre { background: var(--raised); padding: .6rem .8rem; font-size: .86rem; white-space: pre-wrap; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; margin: .4rem 0 1.2rem; }
caption { text-align: left; font-weight: 600; padding-bottom: .3rem; }
th, td { padding: .3rem .7rem .3rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--rule); }
th { font-weight: 600; color: var(--soft); }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.n + :not(.n) { padding-left: .8rem; }
td:not(.n) { min-width: 6.5rem; }
td small { display: block; color: var(--soft); font-size: .78rem; }
.cards { font-size: .84rem; }
details { margin: .4rem 0 0; font-size: .9rem; }
summary { cursor: pointer; color: var(--soft); }
.verdict { font-weight: 600; white-space: nowrap; }
.agrees { color: var(--good); } .differs { color: var(--poor); }
.direction, .undecided, .agrees-otherwise { color: var(--fair); }
@media (max-width: 34rem) { main { padding: .8rem .8rem 3rem; } h1 { font-size: 1.4rem; } dl.facts { grid-template-columns: minmax(0, 1fr); }
  dl.facts dd { margin-bottom: .3rem; } th, td { padding-right: .5rem; }
  .cards, .cards caption, .cards tbody, .cards tr { display: block; } .cards thead { display: none; }
  .cards tr { padding: .5rem 0; border-bottom: 1px solid var(--rule); }
  .cards td { display: flex; justify-content: space-between; gap: 1rem; border: 0; padding: .1rem 0; text-align: right; white-space: normal; }
  .cards .n + td { padding-left: 0; } .cards .n small { display: inline; }
  .cards td:first-child { display: block; text-align: left; font-weight: 600; }
  .cards td:first-child::before { display: none; }
  .cards td::before { content: attr(data-label); color: var(--soft); text-align: left; flex: none; } .cards td:empty { display: none; } }
@media print { main { max-width: none; } details { display: none; } }
"#;

"""How cards look: variables and rules under one class, light and dark, nothing from elsewhere."""

from __future__ import annotations

from typing import Final

_LIGHT: Final = (
    "color-scheme:light;--bg:#fff;--fg:#1c2024;--dim:#60646c;--line:#d9dce1;--soft:#f5f6f8;--good:#18794e;"
    "--wait:#8f5200;--bad:#c62a2f;--blue:#0b68b0;--good-bg:#e6f6eb;--wait-bg:#fff3d6;--bad-bg:#ffe9e9;"
    "--plain-bg:#eceef1;--bar:#8ab4d8"
)
_DARK: Final = (
    "color-scheme:dark;--bg:#17191c;--fg:#e8eaed;--dim:#a2a7b0;--line:#363a41;--soft:#1f2226;--good:#5bd69c;"
    "--wait:#ffc566;--bad:#ff8b8b;--blue:#7cc4ff;--good-bg:#12301f;--wait-bg:#362705;--bad-bg:#3d1718;"
    "--plain-bg:#2a2e34;--bar:#40678c"
)
_RULES: Final = """
& {background:var(--bg);color:var(--fg);font:13px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
 border:1px solid var(--line);border-radius:10px;padding:12px 16px;margin:6px 0;max-width:1100px;overflow:hidden;
 text-align:left}
& * {box-sizing:border-box}
& .c {border:1px solid var(--line);border-radius:8px;padding:8px 12px;margin:8px 0;background:var(--bg)}
& .h {display:flex;flex-wrap:wrap;gap:4px 10px;align-items:baseline}
& .h b {font-size:15px;font-weight:650;overflow-wrap:anywhere}
& .k,& .n {color:var(--dim);font-weight:400}
& .n {font-size:12px} & summary>.h {display:inline-flex}
& .f {display:flex;flex-wrap:wrap;gap:2px 22px;margin:6px 0 2px}
& .f i,& .l,& dt {font-style:normal;color:var(--dim);font-size:12px}
& .f span {overflow-wrap:anywhere;min-width:0}
& .l {margin:12px 0 3px;font-weight:600;letter-spacing:.01em}
& .chip {display:inline-block;border-radius:20px;padding:0 9px;font-size:12px;font-weight:600;white-space:nowrap;
 border:1px solid currentColor;background:var(--plain-bg);color:var(--dim)}
& .good {color:var(--good);background:var(--good-bg)} & .wait {color:var(--wait);background:var(--wait-bg)}
& .bad {color:var(--bad);background:var(--bad-bg)}
& .w {border-left:3px solid var(--line);padding:1px 0 1px 10px;margin:2px 0;background:none;color:var(--fg)}
& .w.good {border-color:var(--good)} & .w.wait {border-color:var(--wait)} & .w.bad {border-color:var(--bad)}
& .v,& td,& pre,& dd,& .w {unicode-bidi:isolate;overflow-wrap:anywhere;white-space:pre-wrap;overflow:hidden}
& pre,& code {font:12px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
& pre {background:var(--soft);color:var(--fg);border:0;border-radius:6px;padding:8px 10px;margin:4px 0;
 max-height:420px;overflow:auto}
& code {background:var(--soft);color:var(--fg);border:0;border-radius:4px;padding:1px 5px}
& .q {color:var(--dim)}
& table {border-collapse:collapse;table-layout:auto;width:100%;margin:2px 0;border:0;font-size:13px;color:inherit}
& tbody tr:nth-child(n) {background:none}
& th,& td {text-align:left;vertical-align:top;padding:3px 12px 3px 0;border:0;border-top:1px solid var(--line)}
& th {color:var(--dim);font-weight:500;font-size:12px;border:0;white-space:nowrap}
& td:first-child,& .r {width:1%} & td:last-child {width:58%} & td.s .v,& td .chip {white-space:nowrap}
& td.r {text-align:right;font-variant-numeric:tabular-nums}
& dl {display:grid;grid-template-columns:minmax(70px,max-content) minmax(0,1fr);gap:1px 12px;margin:2px 0}
& dt {overflow-wrap:anywhere;max-width:220px;padding-top:1px;float:none;width:auto;font-weight:400}
& dd {margin:0;min-width:0}
& details {margin:1px 0;white-space:normal} & summary {cursor:pointer;white-space:pre-wrap}
& summary.l {color:var(--dim)}
& details>.in {border-left:1px solid var(--line);padding-left:10px;margin:2px 0 6px 3px}
& del {color:var(--bad);background:var(--bad-bg);text-decoration:line-through}
& ins {color:var(--good);background:var(--good-bg);text-decoration:underline}
& .m {display:flex;align-items:center;gap:10px;margin:4px 0} & .m .n {white-space:nowrap}
& .m .o {flex:1;max-width:320px;height:8px;border-radius:8px;background:var(--plain-bg);border:1px solid var(--line);
 overflow:hidden}
& .m .u {display:block;height:100%;background:var(--blue)} & .m .u.bad {background:var(--bad)}
& .strip {overflow-x:auto;padding:2px 0} & .strip.end {direction:rtl} & .strip svg {direction:ltr;display:block;
 max-width:none}
& .g {display:flex;flex-wrap:wrap;gap:2px 16px;color:var(--dim);font-size:12px;margin-top:4px}
& .g span {display:inline-flex;align-items:center;gap:5px}
& svg text {font:11px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:var(--dim)}
& svg .t {fill:var(--fg)} & svg .b {font-weight:650;fill:var(--fg)}
& svg .e {fill:none;stroke:var(--dim);stroke-width:1.4} & svg .d {fill:none;stroke:var(--line)}
& svg .z {fill:var(--fg);stroke:var(--bg);stroke-width:1} & svg .o {fill:var(--bg);stroke:var(--fg);stroke-width:1.6}
& svg .z.wait {fill:var(--wait)} & svg .z.bad {fill:var(--bad)} & svg .z.good {fill:var(--good)}
& svg .z.tool {fill:var(--blue)}
& svg .y {fill:var(--bar)} & svg .p {fill:var(--plain-bg);stroke:var(--line)} & svg .p.a {fill:var(--soft)}
& svg .p.wait {fill:var(--wait-bg)} & svg .p.bad {fill:var(--bad-bg)} & svg .p.good {fill:var(--good-bg)}
& svg .cut {fill:none;stroke:var(--bad);stroke-width:2.6} & svg .cut.under {stroke:var(--bg);stroke-width:6}
& svg .x {fill:transparent} & svg g:hover>.x {fill:var(--fg);fill-opacity:.08}
& svg .box {fill:var(--soft);stroke:var(--dim);stroke-width:1.2} & svg .end {fill:var(--bg);stroke:var(--dim);
 stroke-width:1.2}
& svg .a {fill:var(--dim)} & svg .dash {stroke-dasharray:4 3}
""".strip()


def style() -> str:
    """Give the rules; a notebook's own choice of light or dark comes before the system's.

    The class stands twice, to outrank what notebooks say of any table and any list.
    """
    rules = "".join(line if line.startswith(" ") else f"\n{line}" for line in _RULES.split("\n"))
    dark = "body[data-jp-theme-light=false] .ckpt,body.vscode-dark .ckpt,[data-theme=dark] .ckpt"
    light = "body[data-jp-theme-light=true] .ckpt,body.vscode-light .ckpt,[data-theme=light] .ckpt"
    return (
        f".ckpt{{{_LIGHT}}}@media(prefers-color-scheme:dark){{.ckpt{{{_DARK}}}}}"
        f"{light}{{{_LIGHT}}}{dark}{{{_DARK}}}" + rules.replace("&", ".ckpt.ckpt")
    )


PAGE: Final = (
    "html{background:#fff}body{margin:16px auto;max-width:1132px;padding:0 12px;background:#fff}"
    "@media(prefers-color-scheme:dark){html,body{background:#0e1012}}"
)

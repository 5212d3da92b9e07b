/* Light, dark, narrow, in print, and in colours that the reader's system forces. */
#include "partitioner/report/report_style.h"

/* Colours of light pages, and of print. Forward is dark, backward light: they differ without colour, too. */
#define LIGHT                                                                                                          \
    "--ink:#1c2430;--soft:#535d6b;--line:#d5dae1;--back:#fff;--panel:#f3f5f8;--forward:#1f559b;--backward:#c77f12;"    \
    "--weights:#8a5fb5;--update:#4c8b48;--memory:#5b6f8f;--over:#b3362b;--good:#2e7031"

const char drawing_colours[] =
    ":root{color-scheme:light dark;" LIGHT "}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e4e8ee;--soft:#a3adbb;--line:#39424f;--back:#14181e;"
    "--panel:#1d232c;--forward:#5b93d8;--backward:#edbf76;--weights:#b894dd;--update:#84c07f;--memory:#93a5c2;"
    "--over:#ee7b70;--good:#84c07f}}\n"
    ".f{fill:var(--forward)}.b{fill:var(--backward)}.w{fill:var(--weights)}.u{fill:var(--update)}"
    ".r{stroke:var(--line);stroke-width:.7}\n";

const char html_style[] =
    "*{box-sizing:border-box}body{margin:0 auto;max-width:74rem;padding:2rem 1.5rem 3rem;background:var(--back);"
    "color:var(--ink);font:15px/1.5 system-ui,sans-serif}\n"
    "h1{font-size:1.6rem;line-height:1.2;margin:0 0 .25rem;overflow-wrap:anywhere}"
    "h2{font-size:1.15rem;margin:2.4rem 0 .5rem}h3{font-size:1rem;margin:1.4rem 0 .4rem}"
    "p{margin:.4rem 0;max-width:46rem}ol{margin:.4rem 0;padding-left:1.4rem}a{color:var(--forward)}"
    "p,li,code{overflow-wrap:anywhere}"
    ":focus-visible{outline:2px solid var(--forward);outline-offset:2px}\n"
    "nav{margin:1rem 0;display:flex;flex-wrap:wrap;gap:.4rem 1.2rem}\n"
    ".soft,caption{color:var(--soft)}caption{text-align:left;padding-bottom:.4rem}\n"
    ".proof{border-left:4px solid var(--good);padding:.5rem .9rem;background:var(--panel)}"
    ".open{border-color:var(--backward)}\n"
    "dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.8rem;margin:1.2rem 0}"
    "dl div{background:var(--panel);padding:.6rem .8rem;border-radius:6px}dt{color:var(--soft);font-size:.87rem}"
    "dd{margin:0;font-size:1.25rem;font-variant-numeric:tabular-nums}\n"
    ".wide{overflow:auto}.tall{max-height:38rem}table{border-collapse:collapse;font-variant-numeric:tabular-nums;"
    "min-width:min(100%,40rem)}"
    "th,td{text-align:left;padding:.28rem 1.1rem .28rem 0;border-bottom:1px solid var(--line);white-space:nowrap;"
    "font-weight:400}thead th{color:var(--soft);font-weight:500;position:sticky;top:0;background:var(--back)}"
    ".n{text-align:right}.best th,.best td{font-weight:600}.name{white-space:normal;overflow-wrap:anywhere;"
    "min-width:8rem}\n"
    ".bar{display:inline-flex;vertical-align:middle;width:8rem;height:.75rem;background:var(--line);border-radius:3px;"
    "overflow:hidden;margin-right:.6rem}.bar i{height:100%}.over{color:var(--over);font-weight:600}\n"
    "svg{display:block;width:100%;height:auto}.wide svg{min-width:44rem}.wide text{fill:var(--soft);font:11px "
    "system-ui,sans-serif}\n"
    /* Of two drawings of one thing the one that fits, whole. */
    ".narrow{display:none;max-width:36rem}"
    "@media screen and (max-width:44rem){.broad{display:none}.narrow{display:block}}\n"
    ".fb{background:var(--forward)}.bb{background:var(--backward)}.wb{background:var(--weights)}"
    ".ub{background:var(--update)}.mb{background:var(--memory)}.ob{background:var(--over)}\n"
    ".key span{display:inline-block;width:.8rem;height:.8rem;border-radius:2px;margin:0 .4rem 0 1.2rem;"
    "vertical-align:-1px}.key span:first-child{margin-left:0}.key .wb{height:.45rem;vertical-align:0}\n"
    ".bar,.key span,svg{forced-color-adjust:none}\n"
    /* Narrow: bars above their numbers, and cells that wrap, so that what matters needs no scrolling sideways. */
    "@media screen and (max-width:40rem){body{padding:1.2rem 1rem 2rem}th,td{padding-right:.7rem;vertical-align:top}"
    "th,.ends{white-space:normal}caption{max-width:calc(100vw - 2rem)}"
    "table{min-width:0}.bar{display:flex;width:100%;min-width:4rem;margin:.35rem 0 .2rem}"
    ".limit{display:block}}\n"
    "@media print{:root{color-scheme:light;" LIGHT ";--ink:#000;--soft:#444;--line:#bbb;--panel:#f3f3f3}"
    "*{print-color-adjust:exact;-webkit-print-color-adjust:exact}"
    "body{padding:0;max-width:none;font-size:10px}nav{display:none}.wide{overflow:visible}.tall{max-height:none}"
    "dl{grid-template-columns:repeat(5,1fr)}dd{font-size:1.1rem}h2{margin-top:1.6rem}"
    ".wide svg{min-width:0}.bar{width:5rem}th,td{padding-right:.6rem}tr,svg,dl,li{break-inside:avoid}"
    "h2,h3,h2+p,.key,.soft,caption,thead{break-after:avoid}thead th{position:static}}\n";

import { expect } from "@playwright/test";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const web = fileURLToPath(new URL("../../web/", import.meta.url));
const options = {
  allowJs: true, checkJs: true, noEmit: true, strict: false, skipLibCheck: true, noImplicitAny: true /* or any name exists in a literal of JavaScript */, target: ts.ScriptTarget.ESNext, module: ts.ModuleKind.ESNext,
  moduleResolution: ts.ModuleResolutionKind.Bundler, lib: ["lib.esnext.d.ts", "lib.dom.d.ts", "lib.dom.iterable.d.ts"], types: [],
};
const missing = new Set([2339, 2551]); // a name that does not exist, and one that is like another

const libraries = new Map(); // by name, read once: they are most of what TypeScript reads

/** Returns what TypeScript finds wrong with the texts that a page's modules, or one of them, ask for, when it knows the page's dictionary. */
function faults(page, only = "", change = (source) => source) {
  const host = ts.createCompilerHost(options);
  const read = host.getSourceFile;
  host.getSourceFile = (name, ...more) => {
    if (!name.startsWith(web)) return libraries.get(name) ?? libraries.set(name, read(name, ...more)).get(name);
    const source = readFileSync(name, "utf8").replace("@returns {{lang: string, t: any,", `@returns {{lang: string, failed?: boolean, t: typeof import("../${page}/words_en.js").words,`);
    return ts.createSourceFile(name, name === web + only ? change(source) : source, options.target, true);
  };
  const program = ts.createProgram([`${web}${page}/main.js`], options, host);
  const types = program.getTypeChecker();
  const others = page === "driver" && `${web}assets/ui.js`; // the driver's page has no use for a part of it
  const isText = (type) => type?.symbol?.declarations?.some((d) => /\/words_en\w*\.js$/.test(d.getSourceFile().fileName));
  const modules = program.getSourceFiles().filter(({ fileName }) => fileName.startsWith(web + only) && fileName !== others);
  return modules.flatMap((file) => program.getSemanticDiagnostics(file)).filter((d) => missing.has(d.code)).flatMap((d) => {
    let node = find(d.file, d.start);
    while (node && !ts.isPropertyAccessExpression(node) && !ts.isBindingElement(node)) node = node.parent;
    if (!node) return [];
    const of = ts.isBindingElement(node) ? types.getTypeAtLocation(node.parent) : types.getTypeAtLocation(node.expression);
    return isText(of) ? [`${d.file.fileName.slice(web.length)}: ${node.getText()}`] : [];
  });
}

function find(node, at) {
  return ts.forEachChild(node, (child) => (child.getStart() <= at && at < child.end ? find(child, at) : undefined)) ?? node;
}

for (const page of ["console", "driver"]) {
  test(`${page}: each text that a module asks for exists`, () => expect(faults(page)).toEqual([]));
}

test("a missing or misspelled text is found", () => {
  const broken = (source) => source.replace("t.board.byState", "t.board.byStates").replace("const { t, clock } = useLanguage()", "const { t, t: { bored }, clock } = useLanguage()");
  expect(faults("console", "console/board.js", broken).sort()).toEqual(["console/board.js: bored", "console/board.js: t.board.byStates"]);
});

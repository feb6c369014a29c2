package main

import (
	"go/ast"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// waits are the functions that may wait for a time, or compare with one, outside of what is known to be a bubble, and why.
var waits = map[string]string{
	"handler TestStreamOutlivesDeadlines":             "the stream must not end meanwhile",
	"lock TestFencesOfStrategiesCompare":              "two times must differ",
	"lock TestQuorumVoteThatIsTakenBackLate":          "no rival may get the name meanwhile",
	"lock/locktest compete":                           "the moment of a partition",
	"lock/locktest mustEndExactly":                    "the moment of a fault, in a bubble",
	"lock/locktest mustNotHappen":                     "it must not happen meanwhile",
	"lock/locktest mustStayHeld":                      "the lease must not end meanwhile",
	"lock/locktest takeOver":                          "a lease has to end, in a bubble",
	"limit TestRetryAfterIsEnough":                    "waits for as long as it is told to",
	"limit TestSlyCaller":                             "a caller goes on for a while",
	"notify/fcmtest TestCloseWaits":                   "Close must not return meanwhile",
	"notify/stream TestOpenedWhileStarting":           "the stream must not open meanwhile",
	"repository/database TestMigrateWaitsForTheOther": "the migration must not end meanwhile",
	"schedule rage":                                   "a storm goes on for a while",
	"schedule restore":                                "a storm goes on for a while",

	"handler pass":           "a step of a life, which is in a bubble",
	"handler tick":           "a step of a life, which is in a bubble",
	"lock/locktest counter":  "work that takes a moment",
	"lock/locktest deliver":  "a slow network, which is in a bubble",
	"notify Send":            "a push service in a bubble",
	"notify TestDeadToken":   "waits in a bubble only",
	"notify end":             "only a wire in a bubble replies late",
	"notify/webhooks repeat": "a slow endpoint, which is in a bubble",

	"lock/locktest beat":        "judges nothing if the machine stood still",
	"lock/locktest eventually":  "gives up, and fails",
	"lock/locktest pollAcquire": "gives up, and fails",
	"systemtest await":          "gives up, and fails",
	"systemtest rest":           "gives up, and fails",
	"systemtest startCrews":     "drivers who have won enough rest",

	"systemtest/sim answer":     "called in the bubble of the simulation",
	"systemtest/sim react":      "called in the bubble of the simulation",
	"systemtest/sim claimLater": "called in the bubble of the simulation",
	"systemtest/sim hesitate":   "called in the bubble of the simulation",
	"systemtest/sim strikes":    "called in the bubble of the simulation",
	"systemtest/sim get":        "called in the bubble of the simulation",
	"systemtest/sim set":        "called in the bubble of the simulation",
	"systemtest/sim serve":      "called in the bubble of the simulation",
	"systemtest/sim stand":      "called in the bubble of the simulation",
}

// TestTestsDoNotDependOnSpeed fails if a test sleeps, or bounds from above the time that something takes: on a busy machine any bound is
// exceeded some time. Both are allowed in files with the tag soak, in benchmarks, and in a bubble of testing/synctest, whose clock stands
// still while a goroutine works. What waits says is allowed too.
func TestTestsDoNotDependOnSpeed(t *testing.T) {
	folders := map[string][]*ast.FuncDecl{}
	walk(t, func(name string, file *ast.File) {
		isTest := strings.HasSuffix(name, "_test.go") || slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing"` })
		if dir := filepath.ToSlash(filepath.Dir(name)); isTest && !isSoak(file) && dir != "testkit" {
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil && !strings.HasPrefix(f.Name.Name, "Benchmark") {
					folders[dir] = append(folders[dir], f)
				}
			}
		}
	})
	left := maps.Clone(waits)
	for dir, functions := range folders {
		bubbles := inBubbles(functions)
		for _, f := range functions {
			name := dir + " " + f.Name.Name
			for _, what := range dependsOnSpeed(f, bubbles) {
				if waits[name] == "" {
					t.Errorf("%s %s outside of a bubble", name, what)
				}
				delete(left, name)
			}
		}
	}
	for name := range left {
		t.Errorf("%s does not wait: it need not be in waits", name)
	}
}

func isSoak(file *ast.File) bool {
	return slices.ContainsFunc(file.Comments, func(c *ast.CommentGroup) bool { return c.Pos() < file.Package && c.List[0].Text == "//go:build soak" })
}

// TestSoakTestsAreRun: make soak runs the tests whose names begin with TestSoak, and no others.
func TestSoakTestsAreRun(t *testing.T) {
	walk(t, func(name string, file *ast.File) {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && isSoak(file) && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && !strings.HasPrefix(f.Name.Name, "TestSoak") && f.Name.Name != "TestMain" {
				t.Errorf("%s: make soak does not run %s: its name has to begin with TestSoak", name, f.Name.Name)
			}
		}
	})
}

// begins reports whether the call begins a bubble: its arguments run in it.
func begins(call *ast.CallExpr) bool {
	name := strings.ToLower(nameOf(call.Fun))
	return name == "synctest.test" || name == "rapid.synctest" || strings.HasSuffix(name, "bubble")
}

// outside calls visit with each node of f that is not in an argument of a call that begins a bubble.
func outside(f *ast.FuncDecl, visit func(ast.Node)) {
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && begins(call) {
			visit(call.Fun)
			return false
		}
		if n != nil {
			visit(n)
		}
		return true
	})
}

// inBubbles are the names of the functions that are known to run in bubbles: they call synctest.Wait, which panics elsewhere, or other
// functions name them only in bubbles, or in such functions.
func inBubbles(functions []*ast.FuncDecl) map[string]bool {
	users := map[string][]string{} // by what they name outside of bubbles
	bubbles, sure := map[string]bool{}, map[string]bool{}
	for _, f := range functions {
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if name, ok := n.(*ast.Ident); ok {
				bubbles[name.Name] = true
			}
			return true
		})
		outside(f, func(n ast.Node) {
			switch n := n.(type) {
			case *ast.Ident:
				users[n.Name] = append(users[n.Name], f.Name.Name)
			case *ast.SelectorExpr:
				sure[f.Name.Name] = sure[f.Name.Name] || nameOf(n) == "synctest.Wait"
			}
		})
	}
	for changed := true; changed; {
		changed = false
		for name := range bubbles {
			if !sure[name] && slices.ContainsFunc(users[name], func(user string) bool { return !bubbles[user] }) {
				delete(bubbles, name)
				changed = true
			}
		}
	}
	return bubbles
}

// dependsOnSpeed says what f does that depends on the machine's speed.
func dependsOnSpeed(f *ast.FuncDecl, bubbles map[string]bool) (all []string) {
	if bubbles[f.Name.Name] {
		return nil
	}
	given := map[ast.Node]bool{} // the calls of time.After that end a wait for something else
	outside(f, func(n ast.Node) {
		switch n := n.(type) {
		case *ast.CommClause:
			if wait, ok := n.Comm.(*ast.ExprStmt); ok && len(n.Body) > 0 {
				given[ast.Unparen(wait.X).(*ast.UnaryExpr).X] = true
			}
		case *ast.CallExpr:
			switch name := nameOf(n.Fun); {
			case name == "time.Sleep", name == "time.After" && !given[n]:
				all = append(all, "waits for a time")
			case comparesNow(f, n):
				all = append(all, "compares the time with an end")
			}
		case *ast.BinaryExpr:
			if isBound(f, n) {
				all = append(all, "bounds a measured time from above")
			}
		}
	})
	return all
}

// isBound reports whether n is true if something took longer than it should.
func isBound(f *ast.FuncDecl, n *ast.BinaryExpr) bool {
	switch n.Op {
	case token.GTR, token.GEQ:
		return isMeasured(f, n.X)
	case token.LSS, token.LEQ:
		return isMeasured(f, n.Y)
	default:
		return false
	}
}

// comparesNow reports whether the call compares the present with another time, as in time.Now().After(end).
func comparesNow(f *ast.FuncDecl, call *ast.CallExpr) bool {
	method, ok := call.Fun.(*ast.SelectorExpr)
	return ok && (method.Sel.Name == "After" || method.Sel.Name == "Before") && isOrIsSetTo(f, method.X, isNow)
}

// isOrIsSetTo reports whether what is true for x, or for what the variable x of f is set to.
func isOrIsSetTo(f *ast.FuncDecl, x ast.Expr, what func(ast.Expr) bool) bool {
	if what(x) {
		return true
	}
	variable, ok := x.(*ast.Ident)
	found := false
	ast.Inspect(f, func(n ast.Node) bool {
		set, isSet := n.(*ast.AssignStmt)
		if ok && isSet && len(set.Lhs) == len(set.Rhs) {
			for i, l := range set.Lhs {
				found = found || nameOf(l) == variable.Name && what(set.Rhs[i])
			}
		}
		return !found
	})
	return found
}

func isNow(x ast.Expr) bool {
	call, ok := x.(*ast.CallExpr)
	return ok && nameOf(call.Fun) == "time.Now"
}

// isMeasured reports whether x is the time that something took: time.Since, now.Sub, or a variable of f that is set to one.
func isMeasured(f *ast.FuncDecl, x ast.Expr) bool {
	return isOrIsSetTo(f, x, func(x ast.Expr) (found bool) {
		ast.Inspect(x, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				method, ok := call.Fun.(*ast.SelectorExpr)
				found = found || nameOf(call.Fun) == "time.Since" || ok && method.Sel.Name == "Sub" && isOrIsSetTo(f, method.X, isNow)
			}
			return !found
		})
		return found
	})
}

// nameOf is "x" or "x.y", or empty for other expressions.
func nameOf(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		if base, ok := x.X.(*ast.Ident); ok {
			return base.Name + "." + x.Sel.Name
		}
	}
	return ""
}

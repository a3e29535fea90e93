//go:build linux

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Kinds of mutations.
const (
	kindRemove = "remove"
	kindNegate = "negate"
	kindNil    = "nil"
)

// mutant is one change of one statement.
type mutant struct {
	file     string // path of the source below the module, "storage/erase/erase.go"
	line     int
	function string // "System.Disks"
	kind     string
	text     string // first line of the statement or expression
	count    int    // 1 for the first mutant of this kind and text in the function, 2 for the second
	logging  bool   // the statement only logs
}

// name identifies a mutant. It does not depend on line numbers.
func (m mutant) name() string {
	name := fmt.Sprintf("%s | %s | %s | %s", m.file, m.function, m.kind, m.text)
	if m.count > 1 {
		name += fmt.Sprintf(" #%d", m.count)
	}
	return name
}

// insertion is a text to insert at an offset of a file.
type insertion struct {
	offset int
	text   string
}

// instrumenter makes the mutants of one package.
type instrumenter struct {
	mutants []mutant
	counts  map[string]int

	// Of the current file.
	name       string
	source     []byte
	files      *token.FileSet
	insertions []insertion
	functions  []scope // that enclose the current statement, the innermost last
}

// scope is a function or function literal.
type scope struct {
	name    string
	results *ast.FieldList
}

// instrument returns the source of a file with its mutants, which it adds to those of the package. name is the path
// below the module.
func (in *instrumenter) instrument(path, name string) ([]byte, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	in.name, in.source, in.files, in.insertions = name, source, token.NewFileSet(), nil
	file, err := parser.ParseFile(in.files, path, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Body != nil {
				in.function(functionName(d), d.Type, d.Body)
			}
		case *ast.GenDecl:
			in.literals(d)
		}
	}
	return in.apply(), nil
}

// apply returns the source with all insertions. Insertions at the same offset are in the order in which they were made.
func (in *instrumenter) apply() []byte {
	slices.SortStableFunc(in.insertions, func(a, b insertion) int { return cmp.Compare(a.offset, b.offset) })
	var out bytes.Buffer
	last := 0
	for _, i := range in.insertions {
		out.Write(in.source[last:i.offset])
		out.WriteString(i.text)
		last = i.offset
	}
	out.Write(in.source[last:])
	return out.Bytes()
}

func functionName(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List) == 0 {
		return f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	if generic, ok := receiver.(*ast.IndexExpr); ok {
		receiver = generic.X
	}
	if ident, ok := receiver.(*ast.Ident); ok {
		return ident.Name + "." + f.Name.Name
	}
	return f.Name.Name
}

// function visits the statements of a function and of the function literals in it.
func (in *instrumenter) function(name string, signature *ast.FuncType, body *ast.BlockStmt) {
	in.functions = append(in.functions, scope{name, signature.Results})
	ast.Inspect(body, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.FuncLit:
			in.function(name, n.Type, n.Body)
			return false
		case *ast.BlockStmt:
			in.list(n.List)
		case *ast.CaseClause:
			in.list(n.Body)
		case *ast.CommClause:
			in.list(n.Body)
		case *ast.IfStmt:
			in.wrap(n.Cond, kindNegate, "mutantNegate")
		case *ast.SwitchStmt:
			in.cases(n)
		case *ast.ReturnStmt:
			in.returned(n)
		}
		return true
	})
	in.functions = in.functions[:len(in.functions)-1]
}

// literals visits the function literals of package variables.
func (in *instrumenter) literals(d *ast.GenDecl) {
	for _, spec := range d.Specs {
		values, ok := spec.(*ast.ValueSpec)
		if !ok {
			continue
		}
		ast.Inspect(values, func(node ast.Node) bool {
			if f, ok := node.(*ast.FuncLit); ok {
				in.function(values.Names[0].Name, f.Type, f.Body)
				return false
			}
			return true
		})
	}
}

// list makes mutants that lack one of the statements.
func (in *instrumenter) list(statements []ast.Stmt) {
	for _, s := range statements {
		if !in.removable(s) {
			continue
		}
		n := in.add(s, kindRemove)
		in.insert(s.Pos(), fmt.Sprintf("if !mutantIs(%d) { ", n))
		in.insert(s.End(), " }")
	}
}

func (in *instrumenter) removable(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt:
		call, ok := s.X.(*ast.CallExpr)
		return !ok || !isPanic(call) // a function can require it as its last statement
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE && !isIdle(s)
	case *ast.IncDecStmt, *ast.SendStmt, *ast.DeferStmt, *ast.GoStmt:
		return true
	case *ast.BranchStmt:
		return s.Tok == token.BREAK || s.Tok == token.CONTINUE
	case *ast.ReturnStmt: // a function with results can require it as its last statement
		return in.innermost().results.NumFields() == 0
	}
	return false
}

func (in *instrumenter) innermost() scope { return in.functions[len(in.functions)-1] }

func isPanic(call *ast.CallExpr) bool {
	name, ok := call.Fun.(*ast.Ident)
	return ok && name.Name == "panic"
}

// isIdle reports whether a statement assigns to nothing but "_" and calls nothing.
func isIdle(s *ast.AssignStmt) bool {
	for _, left := range s.Lhs {
		if name, ok := left.(*ast.Ident); !ok || name.Name != "_" {
			return false
		}
	}
	idle := true
	for _, right := range s.Rhs {
		ast.Inspect(right, func(n ast.Node) bool {
			if _, ok := n.(*ast.CallExpr); ok {
				idle = false
			}
			return idle
		})
	}
	return idle
}

// cases negates the conditions of a switch without a tag.
func (in *instrumenter) cases(s *ast.SwitchStmt) {
	if s.Tag != nil {
		return
	}
	for _, clause := range s.Body.List {
		for _, condition := range clause.(*ast.CaseClause).List {
			in.wrap(condition, kindNegate, "mutantNegate")
		}
	}
}

// returned makes mutants of the results of a function: of its error, or of its only result if that is a bool.
func (in *instrumenter) returned(s *ast.ReturnStmt) {
	results := in.innermost().results
	if results.NumFields() == 0 || len(s.Results) != results.NumFields() {
		return // bare, or the results of another function
	}
	last := s.Results[len(s.Results)-1]
	kind, ok := results.List[len(results.List)-1].Type.(*ast.Ident)
	value, isName := last.(*ast.Ident)
	switch {
	case !ok || isName && value.Name == "nil":
	case kind.Name == "error":
		in.wrap(last, kindNil, "mutantNil")
	case kind.Name == "bool" && len(s.Results) == 1:
		in.wrap(last, kindNegate, "mutantNegate")
	}
}

// wrap passes an expression to a function of the switchboard.
func (in *instrumenter) wrap(e ast.Expr, kind, function string) {
	n := in.add(e, kind)
	in.insert(e.Pos(), fmt.Sprintf("%s(%d, ", function, n))
	in.insert(e.End(), ")")
}

func (in *instrumenter) insert(at token.Pos, text string) {
	in.insertions = append(in.insertions, insertion{in.files.Position(at).Offset, text})
}

// add registers a mutant and returns its number.
func (in *instrumenter) add(node ast.Node, kind string) int {
	position := in.files.Position(node.Pos())
	text, _, _ := strings.Cut(string(in.source[position.Offset:in.files.Position(node.End()).Offset]), "\n")
	m := mutant{
		file: filepath.ToSlash(in.name), line: position.Line, function: in.innermost().name, kind: kind, text: text,
		logging: kind == kindRemove && isLogging(node),
	}
	in.counts[m.name()]++
	m.count = in.counts[m.name()]
	in.mutants = append(in.mutants, m)
	return len(in.mutants) - 1
}

// isLogging reports whether a statement is a call of a logger of log/slog, which go by the names log, Log, logger and
// slog here.
func isLogging(node ast.Node) bool {
	s, ok := node.(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := s.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains([]string{"Debug", "Info", "Warn", "Error", "Log", "LogAttrs"}, method.Sel.Name) {
		return false
	}
	receiver := method.X
	if inner, ok := receiver.(*ast.CallExpr); ok { // slog.Default().Error(…)
		receiver = inner.Fun
	}
	name := ""
	switch r := receiver.(type) {
	case *ast.Ident:
		name = r.Name
	case *ast.SelectorExpr:
		name = r.Sel.Name
		if outer, ok := r.X.(*ast.Ident); ok && name == "Default" {
			name = outer.Name
		}
	}
	return slices.Contains([]string{"log", "logger", "slog"}, strings.ToLower(name))
}

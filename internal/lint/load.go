package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// listed is the used part of go list's answer.
type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	CgoFiles   []string
	Imports    []string
	Export     string
	Module     *struct{ Path string }
	Error      *struct{ Err string }
}

// List returns the packages in and below dir, without those under testdata, and the path of their
// module.
func List(dir string) (module string, packages []Package, err error) {
	all, err := goList(dir, "./...")
	if err != nil {
		return "", nil, err
	}
	for _, l := range all {
		if l.Error != nil {
			return "", nil, fmt.Errorf("list %s: %s", l.ImportPath, l.Error.Err)
		}
		if module == "" {
			module = l.Module.Path
		}
		if len(l.GoFiles)+len(l.CgoFiles) == 0 {
			continue // holds only tests
		}
		pkg := Package{Path: within(module, l.ImportPath)}
		for _, imported := range l.Imports {
			if imported == module || strings.HasPrefix(imported, module+"/") {
				pkg.Imports = append(pkg.Imports, within(module, imported))
			} else {
				pkg.Outside = append(pkg.Outside, imported)
			}
		}
		if pkg.Comments, err = packageComments(l); err != nil {
			return "", nil, err
		}
		packages = append(packages, pkg)
	}
	return module, packages, nil
}

func within(module, importPath string) string {
	if importPath == module {
		return "."
	}
	return strings.TrimPrefix(importPath, module+"/")
}

func goList(dir string, args ...string) ([]listed, error) {
	cmd := exec.Command(
		"go",
		append([]string{"list", "-e", "-json=ImportPath,Dir,GoFiles,CgoFiles,Imports,Export,Module,Error"}, args...)...,
	)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the answer of go list: %w", err)
		}
		all = append(all, l)
	}
}

// packageComments returns the files that hold a package comment. A directive for a tool does not
// count; generated packages need only their first line.
func packageComments(l listed) ([]string, error) {
	var files []string
	for _, name := range append(l.GoFiles, l.CgoFiles...) {
		file, err := parser.ParseFile(
			token.NewFileSet(), filepath.Join(l.Dir, name), nil, parser.PackageClauseOnly|parser.ParseComments,
		)
		if err != nil {
			return nil, fmt.Errorf("parse %s of %s: %w", name, l.ImportPath, err)
		}
		if ast.IsGenerated(file) {
			return []string{name}, nil
		}
		if file.Doc != nil && strings.TrimSpace(file.Doc.Text()) != "" {
			files = append(files, name)
		}
	}
	return files, nil
}

// TypeCheck parses and type-checks one package, given as a pattern of the go command such as
// ./placement.
func TypeCheck(dir, pattern string) (Source, error) {
	all, err := goList(dir, "-export", "-deps", pattern)
	if err != nil {
		return Source{}, err
	}
	if len(all) == 0 {
		return Source{}, fmt.Errorf("no package matches %s", pattern)
	}
	exports := make(map[string]string, len(all))
	for _, l := range all {
		exports[l.ImportPath] = l.Export
	}
	target := all[len(all)-1] // dependencies come first
	if target.Error != nil {
		return Source{}, fmt.Errorf("load %s: %s", pattern, target.Error.Err)
	}
	src := Source{
		Fset: token.NewFileSet(),
		Info: &types.Info{Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}},
	}
	for _, name := range target.GoFiles {
		file, err := parser.ParseFile(
			src.Fset, filepath.Join(target.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution,
		)
		if err != nil {
			return Source{}, fmt.Errorf("parse %s: %w", name, err)
		}
		src.Files = append(src.Files, file)
	}
	lookup := func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("go list gave no compiled form of %s", path)
		}
		return os.Open(exports[path])
	}
	config := types.Config{Importer: importer.ForCompiler(src.Fset, "gc", lookup)}
	if src.Types, err = config.Check(target.ImportPath, src.Fset, src.Files, src.Info); err != nil {
		return Source{}, fmt.Errorf("type-check %s: %w", pattern, err)
	}
	return src, nil
}

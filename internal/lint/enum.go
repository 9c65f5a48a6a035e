package lint

import (
	"cmp"
	"go/constant"
	"go/types"
	"slices"
	"strings"
)

// Enum is an enumeration as found in the source: a type of small numbers with named values. A test
// uses it to find a value that is missing elsewhere.
type Enum struct {
	Type   string
	File   string // file that declares the type
	Values []EnumValue
	// Sentinel is the unexported value whose name begins with num. Its name is empty if there is
	// none.
	Sentinel EnumValue
	Methods  []string // sorted
}

// EnumValue is one value of an enumeration.
type EnumValue struct {
	Name   string
	Number int64
}

// Enums returns the enumerations of a package by name: its exported types of an unsigned number
// that have named values. The values are in the order of their numbers.
func (s Source) Enums() []Enum {
	var enums []Enum
	scope := s.Types.Scope()
	for _, name := range scope.Names() {
		of, isType := scope.Lookup(name).(*types.TypeName)
		if !isType || !of.Exported() {
			continue
		}
		named, isNamed := of.Type().(*types.Named)
		basic, isBasic := of.Type().Underlying().(*types.Basic)
		if !isNamed || !isBasic || basic.Info()&types.IsUnsigned == 0 {
			continue
		}
		file, _, _ := strings.Cut(s.Place(of.Pos()), ":")
		e := Enum{Type: name, File: file}
		for _, constName := range scope.Names() {
			c, isConst := scope.Lookup(constName).(*types.Const)
			if !isConst || !types.Identical(c.Type(), named) {
				continue
			}
			number, _ := constant.Int64Val(c.Val())
			if value := (EnumValue{constName, number}); c.Exported() {
				e.Values = append(e.Values, value)
			} else if strings.HasPrefix(constName, "num") {
				e.Sentinel = value
			}
		}
		if len(e.Values) == 0 {
			continue
		}
		slices.SortFunc(e.Values, func(a, b EnumValue) int { return cmp.Compare(a.Number, b.Number) })
		for m := range named.Methods() {
			e.Methods = append(e.Methods, m.Name())
		}
		slices.Sort(e.Methods)
		enums = append(enums, e)
	}
	return enums
}

// Structs returns the sorted names of the exported types of a package that have fields.
func (s Source) Structs() []string {
	var names []string
	scope := s.Types.Scope()
	for _, name := range scope.Names() {
		of, isType := scope.Lookup(name).(*types.TypeName)
		if !isType || !of.Exported() {
			continue
		}
		if _, isStruct := of.Type().Underlying().(*types.Struct); isStruct {
			names = append(names, name)
		}
	}
	return names
}

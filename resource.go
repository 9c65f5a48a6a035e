package plimsoll

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Names of the resources that every node has.
const (
	CPU    = "cpu"    // milli-cores
	Memory = "memory" // bytes
	Disk   = "disk"   // bytes
)

// Names of the extended resources: amounts that are allocated on a node but not used. They are
// lent to best-effort tasks, and taken back from them first.
const (
	ExtCPU    = "ext-cpu"    // milli-cores
	ExtMemory = "ext-memory" // bytes
)

// MaxResourceNames is the number of different resource names in one cluster. The engines keep
// amounts in a small vector.
const MaxResourceNames = 16

// MaxAmount is the largest amount of one resource in one place: 8Pi of bytes. A node's disks and a
// large queue's memory stay below it. Every JSON reader holds it exactly, and a thousand of them
// can be added without overflow.
const MaxAmount = int64(1) << 53

// MaxJobAmount is the largest total of one resource over all tasks of a job.
const MaxJobAmount = int64(1) << 60

// Resources maps a resource name to an amount. A missing name means zero in a request and "no
// limit" in a maximum.
type Resources map[string]int64

// Names returns the names in order.
func (r Resources) Names() []string { return slices.Sorted(maps.Keys(r)) }

// String prints the amounts in the order of their names, for people: "cpu 500m, memory 64Mi".
func (r Resources) String() string {
	if len(r) == 0 {
		return "nothing"
	}
	var b strings.Builder
	for i, name := range r.Names() {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(name + " " + FormatQuantity(name, r[name]))
	}
	return b.String()
}

// Validate returns an error about the first name or amount that cannot be used, in the order of
// the names. The error's field begins with field.
func (r Resources) Validate(field string) error {
	if len(r) > MaxResourceNames {
		return Invalid(field, "has %d names; at most %d are possible", len(r), MaxResourceNames)
	}
	for _, name := range r.Names() {
		if err := ValidateResourceName(name); err != nil {
			return Invalid(field+"."+name, "%s", err)
		}
		if v := r[name]; v < 0 {
			return Invalid(field+"."+name, "is negative (%d); give zero or more", v)
		} else if v > MaxAmount {
			return Invalid(field+"."+name, "is larger than the largest amount, %s", FormatQuantity(name, MaxAmount))
		}
	}
	return nil
}

// validateOfNode reports the first amount that no machine has. Disks may have any amount.
func (r Resources) validateOfNode(field string) error {
	for _, name := range r.Names() {
		most := MaxNodeOther
		switch name {
		case CPU, ExtCPU:
			most = MaxNodeCPU
		case Memory, ExtMemory:
			most = MaxNodeMemory
		case Disk:
			most = MaxAmount
		}
		if r[name] > most {
			return Invalid(
				field+"."+name, "is %s; a node has at most %s", FormatQuantity(name, r[name]),
				FormatQuantity(name, most),
			)
		}
	}
	return nil
}

// ValidateResourceName accepts cpu, memory, disk and custom names such as nvidia.com/gpu.
func ValidateResourceName(name string) error {
	if name == "" || len(name) > 63 {
		return fmt.Errorf("a resource name has 1 to 63 characters")
	}
	for i := range len(name) {
		c := name[i]
		if !isAlphanumeric(c) && (i == 0 || !strings.ContainsRune("-_./", rune(c))) {
			return fmt.Errorf(
				"a resource name is made of letters, digits and - _ . / and starts with a letter or digit",
			)
		}
	}
	return nil
}

// Package triton is a profile of package placement for fleets that are described by Triton's
// records. These are the servers of CNAPI, the machines of VMAPI, packages, images, provisioning
// tickets and the defaults of its designation.
//
//	profile, err := triton.New(names)
//	server, err := profile.Server(record)
//	chain, err := placement.NewChain(expression, profile.Stages(), nil, settings)
//	request, err := profile.Request(triton.Order{VM: vm, Package: pkg, Image: image})
//
// A Profile reads those records into servers, instances, requests, tickets and settings. It also
// gives the stages with Triton's own arithmetic. They calculate the amounts left on a server: whole
// MiB and percents, hardware virtual machines whose memory is not over-provisioned, and a ZFS pool
// with partly filled quotas. They also decide what a package without a ratio may use. All other
// stages are those of package placement, for which the profile only renames fields and converts
// units.
//
// The caller owns a profile, which is pure and belongs to the fleet whose names it was made with.
// It keeps a few numbers for each server that it has read. Its agreement with the original is that
// of the conformance test of package placement.
package triton

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	"github.com/plimsoll-dev/plimsoll/placement"
)

const (
	mib = 1 << 20
	gib = 1 << 30

	milliPercent = 10 // thousandths of a core in one percent

	kvmOverhead   = 1024 * mib // memory that a kvm machine takes in addition to its own
	bhyveOverhead = 1280 * mib
	kvmQuota      = 10 * gib // part of the pool that the zone of a kvm machine may fill
	diskReserve   = 10240    // MiB that every request leaves free
	poolShare     = 0.94     // usable part of a pool

	defaultLimit = 224 // most instances on a server
)

// Names of resources besides cpu, memory and disk, which over-provisioning does not stretch. The
// disk that is booked is the tickets' addition to quotas. The quotas of existing machines are part
// of the server's record.
const (
	HVMMemory = "triton/hvm-memory" // bytes of hardware virtual machines
	Volumes   = "triton/volumes"    // bytes of the pool for kvm machines
)

// Profile reads the records of one fleet.
type Profile struct {
	// TextReleases makes the stages compare releases as texts, as the original does: "10.0" is then
	// older than "7.0". Otherwise releases compare as numbers. Set it before Stages is called.
	TextReleases bool

	hvm, volumes int                // indexes of HVMMemory and Volumes
	override     map[string]float64 // ratios that replace those of all servers and packages; nil: none
	hosts        map[string]host    // by server id
}

// host has the numbers that a server's free amounts are calculated from.
type host struct {
	described bool    // the record has sysinfo
	ratios    bool    // the record has a set of ratios, maybe an empty one
	cores     float64 // cpus
	memory    float64 // bytes
	reserve   float64 // part of the memory that is reserved
	pool      float64 // usable bytes of the ZFS pool
	fixed     float64 // bytes of the pool that images, cores, the system and volumes take
	quota     float64 // bytes of the pool that zones may take
	filled    float64 // bytes of the quotas that zones have filled
	alloc     float64 // bytes of the pool that are allocated in all
}

// New returns a profile for the fleet that uses names.
func New(names *placement.Names) (*Profile, error) {
	own := plimsoll.Resources{HVMMemory: 0, Volumes: 0}
	if err := names.Check("names", own); err != nil {
		return nil, err
	}
	names.Amounts(own)
	return &Profile{hvm: names.Index(HVMMemory), volumes: names.Index(Volumes), hosts: map[string]host{}}, nil
}

// Override sets the ratios of all servers and packages that the profile reads from now on, as the
// product does. They are cpu 4, memory 1 and disk 1, or the overprovision_ratio_ of the defaults.
// If the defaults set disable_override_overprovisioning, records keep their own ratios.
func (p *Profile) Override(defaults []byte) error {
	d, err := readObject("defaults", defaults)
	if err != nil {
		return err
	}
	p.override = nil
	if truthy(d["disable_override_overprovisioning"]) {
		return nil
	}
	p.override = map[string]float64{plimsoll.CPU: 4, plimsoll.Memory: 1, plimsoll.Disk: 1}
	for _, r := range ratioNames[:3] {
		if n := number(d["overprovision_ratio_"+r.server]); n > 0 {
			p.override[r.name] = n
		}
	}
	return nil
}

// ratioNames are the names of ratios in servers, in packages and in this module.
var ratioNames = [...]struct{ server, pack, old, name string }{
	{"cpu", "overprovision_cpu", "", plimsoll.CPU},
	{"ram", "overprovision_ram", "overprovision_memory", plimsoll.Memory},
	{"disk", "overprovision_disk", "overprovision_storage", plimsoll.Disk},
	{"io", "overprovision_io", "", "io"},
	{"net", "overprovision_net", "overprovision_network", "net"},
}

// object is a JSON object that is read leniently, as the original does: a field of a wrong type
// counts as absent.
type object = map[string]any

// number returns a number, or the value of a text that is one; otherwise 0.
func number(v any) float64 {
	switch n := v.(type) {
	case float64:
		return n
	case string:
		if f, err := strconv.ParseFloat(n, 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
			return f
		}
	}
	return 0
}

// amount returns a number of units in bytes or milli-cores, at most MaxAmount. It returns 0 if v is
// no positive number.
func amount(v any, unit float64) int64 {
	if n := number(v) * unit; n > 0 {
		return int64(math.Ceil(min(n, float64(plimsoll.MaxAmount))))
	}
	return 0
}

// truthy reports whether JavaScript would take a value for true.
func truthy(v any) bool {
	switch x := v.(type) {
	case nil:
		return false
	case bool:
		return x
	case float64:
		return x != 0 && !math.IsNaN(x)
	case string:
		return x != ""
	}
	return true
}

// off reports whether a switch of the defaults is present and not on.
func off(d object, key string) bool {
	v, ok := d[key]
	return ok && (!truthy(v) || v == "false")
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

func sub(v any) object {
	o, _ := v.(object)
	return o
}

// seconds returns a time in Unix seconds; 0 if there is none.
func seconds(v any) int64 {
	if t, err := time.Parse(time.RFC3339, text(v)); err == nil {
		return t.Unix()
	}
	return 0
}

func wrong(field string, err error) error {
	return plimsoll.Invalid(field, "is not understood: %s", fmt.Sprint(err))
}

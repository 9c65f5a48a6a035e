package wire

import (
	"maps"
	"slices"
	"time"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// ResourcesToProto converts amounts of resources.
func ResourcesToProto(r plimsoll.Resources) *pb.Resources { return resourcesToProto(r) }

// ResourcesFromProto converts amounts of resources.
func ResourcesFromProto(m *pb.Resources) plimsoll.Resources { return resourcesFromProto(m) }

func resourcesToProto(r plimsoll.Resources) *pb.Resources {
	if r == nil {
		return nil
	}
	m := &pb.Resources{Amounts: make(map[string]int64, len(r))}
	for _, name := range slices.Sorted(maps.Keys(r)) {
		m.Amounts[text(name)] = r[name]
	}
	return m
}

func resourcesFromProto(m *pb.Resources) plimsoll.Resources {
	if m == nil {
		return nil
	}
	r := make(plimsoll.Resources, len(m.GetAmounts()))
	maps.Copy(r, m.GetAmounts())
	return r
}

func textMapToProto(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]string, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		out[text(key)] = text(m[key])
	}
	return out
}

func textMapFromProto(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	return maps.Clone(m)
}

// GroupSpecToProto converts the specification of a group.
func GroupSpecToProto(g *plimsoll.GroupSpec) *pb.GroupSpec {
	m := &pb.GroupSpec{
		Name:            text(g.Name),
		Count:           g.Count,
		Env:             textMapToProto(g.Env),
		WorkDir:         text(g.WorkDir),
		User:            text(g.User),
		UserGroup:       text(g.UserGroup),
		Resources:       resourcesToProto(g.Resources),
		MaxRuntimeNanos: int64(g.MaxRuntime),
		KillGraceNanos:  int64(g.KillGrace),
		LogLimit:        g.LogLimit,
		Command:         textsToProto(g.Command),
		Constraints:     ConstraintsToProto(&g.Constraints),
		Preferences:     PreferencesToProto(&g.Preferences),
		Class:           pb.Class(g.Class),
		Priority:        g.Priority,
		NodePriority:    clonePointer(g.NodePriority),
		Indexes:         slices.Clone(g.Indexes),
		Outputs:         textsToProto(g.Outputs),
	}
	if r := &g.Retry; *r != (plimsoll.RetryPolicy{}) {
		m.Retry = &pb.RetryPolicy{
			Kind: pb.RetryKind(r.Kind), Limit: r.Limit,
			InitialDelayNanos: int64(r.InitialDelay), MaxDelayNanos: int64(r.MaxDelay),
		}
	}
	return m
}

// GroupSpecFromProto converts the specification of a group.
func GroupSpecFromProto(m *pb.GroupSpec) plimsoll.GroupSpec {
	r := m.GetRetry()
	return plimsoll.GroupSpec{
		Name:      m.GetName(),
		Count:     m.GetCount(),
		Command:   textsFromProto(m.GetCommand()),
		Env:       textMapFromProto(m.GetEnv()),
		WorkDir:   m.GetWorkDir(),
		User:      m.GetUser(),
		UserGroup: m.GetUserGroup(),
		Resources: resourcesFromProto(m.GetResources()),
		Retry: plimsoll.RetryPolicy{
			Kind:         EnumFromProto[plimsoll.RetryKind](r.GetKind()),
			Limit:        r.GetLimit(),
			InitialDelay: time.Duration(r.GetInitialDelayNanos()),
			MaxDelay:     time.Duration(r.GetMaxDelayNanos()),
		},
		MaxRuntime:   time.Duration(m.GetMaxRuntimeNanos()),
		KillGrace:    time.Duration(m.GetKillGraceNanos()),
		LogLimit:     m.GetLogLimit(),
		Constraints:  ConstraintsFromProto(m.GetConstraints()),
		Preferences:  PreferencesFromProto(m.GetPreferences()),
		Class:        EnumFromProto[plimsoll.Class](m.GetClass()),
		Priority:     m.GetPriority(),
		NodePriority: clonePointer(m.NodePriority),
		Indexes:      slices.Clone(m.GetIndexes()),
		Outputs:      textsFromProto(m.GetOutputs()),
	}
}

func clonePointer[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// JobSpecToProto converts a job's specification.
func JobSpecToProto(s *plimsoll.JobSpec) *pb.JobSpec {
	m := &pb.JobSpec{
		Id:     text(s.ID),
		Owner:  text(s.Owner),
		Queue:  text(s.Queue),
		Labels: textMapToProto(s.Labels),
		Token:  text(s.Token),

		AgainOf:         text(s.AgainOf),
		OwnerGroups:     textsToProto(s.OwnerGroups),
		Tags:            textMapToProto(s.Tags),
		CompletingNanos: int64(s.Completing),
	}
	for i := range s.Groups {
		m.Groups = append(m.Groups, GroupSpecToProto(&s.Groups[i]))
	}
	return m
}

// JobSpecFromProto converts a job's specification.
func JobSpecFromProto(m *pb.JobSpec) plimsoll.JobSpec {
	s := plimsoll.JobSpec{
		ID:     m.GetId(),
		Owner:  m.GetOwner(),
		Queue:  m.GetQueue(),
		Labels: textMapFromProto(m.GetLabels()),
		Token:  m.GetToken(),

		AgainOf:     m.GetAgainOf(),
		OwnerGroups: textsFromProto(m.GetOwnerGroups()),
		Tags:        textMapFromProto(m.GetTags()),
		Completing:  time.Duration(m.GetCompletingNanos()),
	}
	for _, g := range m.GetGroups() {
		s.Groups = append(s.Groups, GroupSpecFromProto(g))
	}
	return s
}

// AppendJobSpec encodes a job's specification.
func AppendJobSpec(dst []byte, s *plimsoll.JobSpec) []byte {
	return appendMessage(dst, JobSpecToProto(s))
}

// DecodeJobSpec decodes a job's specification.
func DecodeJobSpec(data []byte) (plimsoll.JobSpec, error) {
	var m pb.JobSpec
	if err := decodeMessage("job", data, &m); err != nil {
		return plimsoll.JobSpec{}, err
	}
	for _, g := range m.GetGroups() {
		if err := checkEnum[plimsoll.RetryKind]("retry kind", g.GetRetry().GetKind()); err != nil {
			return plimsoll.JobSpec{}, corrupt("job", err)
		}
		if err := checkEnum[plimsoll.Class]("class", g.GetClass()); err != nil {
			return plimsoll.JobSpec{}, corrupt("job", err)
		}
		if err := checkPlacement(g); err != nil {
			return plimsoll.JobSpec{}, corrupt("job", err)
		}
	}
	return JobSpecFromProto(&m), nil
}

// JobToProto converts a job with its status.
func JobToProto(j *plimsoll.Job) *pb.Job {
	return &pb.Job{Spec: JobSpecToProto(&j.Spec), Status: JobStatusToProto(&j.Status)}
}

// JobFromProto converts a job with its status.
func JobFromProto(m *pb.Job) plimsoll.Job {
	return plimsoll.Job{Spec: JobSpecFromProto(m.GetSpec()), Status: JobStatusFromProto(m.GetStatus())}
}

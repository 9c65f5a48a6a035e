package wire

import (
	"maps"

	"github.com/plimsoll-dev/plimsoll"
	pb "github.com/plimsoll-dev/plimsoll/gen/plimsoll/v1"
)

// QueueConfigToProto converts a queue of the configured tree, with all queues below it.
func QueueConfigToProto(c *plimsoll.QueueConfig) *pb.QueueConfig {
	m := &pb.QueueConfig{
		Name:       text(c.Name),
		Parent:     c.Parent,
		Guaranteed: resourcesToProto(c.Guaranteed),
		Max:        resourcesToProto(c.Max),
		MaxJobs:    c.MaxJobs,
		MaxTasks:   c.MaxTasks,
		Draining:   c.Draining,

		SubmitAccess: accessToProto(c.SubmitAccess),
		AdminAccess:  accessToProto(c.AdminAccess),
		Properties:   textMapToProto(c.Properties),
		Dynamic:      c.Dynamic,
		Partition:    partitionToProto(c.Partition),
	}
	for i := range c.Limits {
		l := &c.Limits[i]
		m.Limits = append(m.Limits, &pb.QueueLimit{
			Name: text(l.Name), Users: textsToProto(l.Users), Groups: textsToProto(l.Groups),
			Max: resourcesToProto(l.Max), MaxJobs: l.MaxJobs,
		})
	}
	if t := c.Template; t != nil {
		m.Template = &pb.QueueTemplate{
			Guaranteed: resourcesToProto(t.Guaranteed), Max: resourcesToProto(t.Max), MaxJobs: t.MaxJobs,
			Properties: textMapToProto(t.Properties),
		}
	}
	for i := range c.Queues {
		m.Queues = append(m.Queues, QueueConfigToProto(&c.Queues[i]))
	}
	return m
}

// QueueConfigFromProto converts a queue of the configured tree, with all queues below it.
func QueueConfigFromProto(m *pb.QueueConfig) plimsoll.QueueConfig {
	c := plimsoll.QueueConfig{
		Name:       m.GetName(),
		Parent:     m.GetParent(),
		Guaranteed: resourcesFromProto(m.GetGuaranteed()),
		Max:        resourcesFromProto(m.GetMax()),
		MaxJobs:    m.GetMaxJobs(),
		MaxTasks:   m.GetMaxTasks(),
		Draining:   m.GetDraining(),

		SubmitAccess: accessFromProto(m.GetSubmitAccess()),
		AdminAccess:  accessFromProto(m.GetAdminAccess()),
		Properties:   textMapFromProto(m.GetProperties()),
		Dynamic:      m.GetDynamic(),
		Partition:    partitionFromProto(m.GetPartition()),
	}
	for _, l := range m.GetLimits() {
		c.Limits = append(c.Limits, plimsoll.QueueLimit{
			Name: l.GetName(), Users: textsFromProto(l.GetUsers()), Groups: textsFromProto(l.GetGroups()),
			Max: resourcesFromProto(l.GetMax()), MaxJobs: l.GetMaxJobs(),
		})
	}
	if t := m.GetTemplate(); t != nil {
		c.Template = &plimsoll.QueueTemplate{
			Guaranteed: resourcesFromProto(t.GetGuaranteed()), Max: resourcesFromProto(t.GetMax()),
			MaxJobs: t.GetMaxJobs(), Properties: textMapFromProto(t.GetProperties()),
		}
	}
	for _, child := range m.GetQueues() {
		c.Queues = append(c.Queues, QueueConfigFromProto(child))
	}
	return c
}

// AppendQueueConfig encodes the configured tree.
func AppendQueueConfig(dst []byte, c *plimsoll.QueueConfig) []byte {
	return appendMessage(dst, QueueConfigToProto(c))
}

// DecodeQueueConfig decodes the configured tree.
func DecodeQueueConfig(data []byte) (plimsoll.QueueConfig, error) {
	var m pb.QueueConfig
	if err := decodeMessage("queue configuration", data, &m); err != nil {
		return plimsoll.QueueConfig{}, err
	}
	return QueueConfigFromProto(&m), nil
}

// QueueStatusToProto converts the derived status of a queue.
func QueueStatusToProto(s *plimsoll.QueueStatus) *pb.QueueStatus {
	return &pb.QueueStatus{
		Path:        text(s.Path),
		Leaf:        s.Leaf,
		Draining:    s.Draining,
		Guaranteed:  resourcesToProto(s.Guaranteed),
		Max:         resourcesToProto(s.Max),
		Allocated:   resourcesToProto(s.Allocated),
		Pending:     resourcesToProto(s.Pending),
		Jobs:        s.Jobs,
		Running:     s.Running,
		Waiting:     s.Waiting,
		Tasks:       s.Tasks,
		MaxTasks:    s.MaxTasks,
		JobsWaiting: s.JobsWaiting,
		Past:        maps.Clone(s.Past),
	}
}

// QueueStatusFromProto converts the derived status of a queue.
func QueueStatusFromProto(m *pb.QueueStatus) plimsoll.QueueStatus {
	return plimsoll.QueueStatus{
		Path:        m.GetPath(),
		Leaf:        m.GetLeaf(),
		Draining:    m.GetDraining(),
		Guaranteed:  resourcesFromProto(m.GetGuaranteed()),
		Max:         resourcesFromProto(m.GetMax()),
		Allocated:   resourcesFromProto(m.GetAllocated()),
		Pending:     resourcesFromProto(m.GetPending()),
		Jobs:        m.GetJobs(),
		Running:     m.GetRunning(),
		Waiting:     m.GetWaiting(),
		Tasks:       m.GetTasks(),
		MaxTasks:    m.GetMaxTasks(),
		JobsWaiting: m.GetJobsWaiting(),
		Past:        maps.Clone(m.GetPast()),
	}
}

// AppendQueueStatus encodes the derived status of a queue.
func AppendQueueStatus(dst []byte, s *plimsoll.QueueStatus) []byte {
	return appendMessage(dst, QueueStatusToProto(s))
}

// DecodeQueueStatus decodes the derived status of a queue.
func DecodeQueueStatus(data []byte) (plimsoll.QueueStatus, error) {
	var m pb.QueueStatus
	if err := decodeMessage("queue status", data, &m); err != nil {
		return plimsoll.QueueStatus{}, err
	}
	return QueueStatusFromProto(&m), nil
}

package kubernetestest

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestManifestsKeepTheRules(t *testing.T) {
	for _, folder := range []string{plain, withFirebase, turnedOn(t)} {
		for _, wrong := range broken(t, build(t, folder)) {
			t.Errorf("%s: %s", folder, wrong)
		}
	}
}

// TestMistakesAreFound breaks each rule once.
func TestMistakesAreFound(t *testing.T) {
	pod := func(m *manifests) *corev1.PodSpec { return &m.deployment.Spec.Template.Spec }
	app := func(m *manifests) *corev1.Container { return &pod(m).Containers[0] }
	without := func(c *corev1.Container, name string) {
		c.Env = slices.DeleteFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == name })
	}
	yes, long := true, int64(6)
	for name, mistake := range map[string]struct {
		do   func(m *manifests)
		says string
	}{
		"an unknown variable":        {func(m *manifests) { app(m).Env[1].Name = "FIRSTTAP_REDDIS_URL" }, "config does not know FIRSTTAP_REDDIS_URL"},
		"an unknown setting":         {func(m *manifests) { m.settings.Data["FIRSTTAP_LOGS"] = "info" }, "config does not know FIRSTTAP_LOGS"},
		"a setting that is refused":  {func(m *manifests) { m.settings.Data["FIRSTTAP_TIMEZONE"] = "Seoul" }, "FIRSTTAP_TIMEZONE"},
		"a pod without the secret":   {func(m *manifests) { without(app(m), "FIRSTTAP_JWT_SECRET") }, "FIRSTTAP_JWT_SECRET: it must be set"},
		"a pod without the key":      {func(m *manifests) { without(app(m), "FIRSTTAP_ADMIN_KEY") }, "FIRSTTAP_ADMIN_KEY: it must be set"},
		"another key of the secret":  {func(m *manifests) { app(m).Env[0].ValueFrom.SecretKeyRef.Key = "url" }, "firsttap/url"},
		"pods that migrate":          {func(m *manifests) { delete(m.settings.Data, "FIRSTTAP_MIGRATE") }, "the pods migrate too"},
		"root":                       {func(m *manifests) { pod(m).SecurityContext.RunAsNonRoot = nil }, "pod: it is not root"},
		"no memory limit":            {func(m *manifests) { app(m).Resources.Limits = nil }, "memory limit"},
		"GOMEMLIMIT":                 {func(m *manifests) { app(m).Env = append(app(m).Env, corev1.EnvVar{Name: "GOMEMLIMIT", Value: "1GiB"}) }, "derives by itself"},
		"a shell":                    {func(m *manifests) { app(m).Command = []string{"sh"} }, "the image's program"},
		"a file system to write":     {func(m *manifests) { app(m).SecurityContext.ReadOnlyRootFilesystem = nil }, "read-only"},
		"another image of the job":   {func(m *manifests) { m.job.Spec.Template.Spec.Containers[0].Image = "firsttap:old" }, "firsttap:old"},
		"a short grace period":       {func(m *manifests) { *pod(m).TerminationGracePeriodSeconds = 45 }, "the grace period is 45s, and to stop may take 50s"},
		"a longer drain":             {func(m *manifests) { m.settings.Data["FIRSTTAP_DRAIN"] = "30s" }, "to stop may take 1m15s"},
		"a longer preStop":           {func(m *manifests) { app(m).Lifecycle.PreStop.Sleep.Seconds = long }, "to stop may take 51s"},
		"no probe":                   {func(m *manifests) { app(m).ReadinessProbe = nil }, "/readyz"},
		"another path":               {func(m *manifests) { app(m).LivenessProbe.HTTPGet.Path = "/healthz" }, "/livez"},
		"another port":               {func(m *manifests) { app(m).Ports[0].ContainerPort = 80 }, "listens on"},
		"operations on loopback":     {func(m *manifests) { delete(m.settings.Data, "FIRSTTAP_OPS_ADDR") }, "127.0.0.1:9090"},
		"a target that is no port":   {func(m *manifests) { m.service.Spec.Ports[0].TargetPort = intstr.FromString("web") }, "the Service does not lead"},
		"a monitor of another port":  {func(m *manifests) { m.monitor.Spec.Endpoints[0].Port = "metrics" }, "the monitor asks"},
		"metrics for everybody":      {func(m *manifests) { m.network.Spec.Ingress[1].From = nil }, "lets 0 sources in to ops"},
		"no limit of what goes out":  {func(m *manifests) { m.network.Spec.PolicyTypes = m.network.Spec.PolicyTypes[:1] }, "both directions"},
		"one pod":                    {func(m *manifests) { *m.deployment.Spec.Replicas = 1 }, "two pods"},
		"no spread":                  {func(m *manifests) { pod(m).TopologySpreadConstraints = nil }, "spread"},
		"a service for the job too":  {func(m *manifests) { delete(m.service.Spec.Selector, "app.kubernetes.io/component") }, "the service does not select"},
		"a budget of something else": {func(m *manifests) { m.disruption.Spec.Selector.MatchLabels["x"] = "y" }, "the disruption budget does not select"},
		"another namespace":          {func(m *manifests) { m.job.Namespace = "default" }, "the job is in the namespace default"},
		"a token of the cluster":     {func(m *manifests) { pod(m).AutomountServiceAccountToken = &yes }, "token"},
	} {
		m := build(t, plain)
		mistake.do(&m)
		wrong := broken(t, m)
		if !slices.ContainsFunc(wrong, func(s string) bool { return strings.Contains(s, mistake.says) }) {
			t.Errorf("%s: want %q, got %q", name, mistake.says, wrong)
		}
	}
}

// TestSecretsAreDocumented: docs/operations.md names each key that the manifests take from a Secret, and no other.
func TestSecretsAreDocumented(t *testing.T) {
	m := build(t, withFirebase)
	used := map[string]bool{}
	for _, p := range []corev1.PodSpec{m.deployment.Spec.Template.Spec, m.job.Spec.Template.Spec} {
		for _, v := range p.Containers[0].Env {
			if v.ValueFrom != nil {
				used[v.ValueFrom.SecretKeyRef.Name+" "+v.ValueFrom.SecretKeyRef.Key] = true
			}
		}
		for _, v := range p.Volumes {
			if v.Secret == nil || len(p.Containers[0].VolumeMounts) != 1 {
				t.Fatalf("a volume that is not one Secret: %+v", v)
			}
			file := strings.TrimPrefix(m.settings.Data["GOOGLE_APPLICATION_CREDENTIALS"], p.Containers[0].VolumeMounts[0].MountPath+"/")
			used[v.Secret.SecretName+" "+file] = true
		}
	}
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| `([a-z.-]+)` \\|").FindAllStringSubmatch(section(t), -1) {
		documented[row[1]+" "+row[2]] = true
	}
	for key := range used {
		if !documented[key] {
			t.Errorf("docs/operations.md does not say what %q is", key)
		}
	}
	for key := range documented {
		if !used[key] {
			t.Errorf("docs/operations.md has %q, which no manifest uses", key)
		}
	}
}

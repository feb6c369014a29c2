package kubernetestest

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"firsttap/config"
)

// stopTime is how long an instance may take to stop, without FIRSTTAP_DRAIN: docs/operations.md says 45 s with a drain of 5 s.
const stopTime = 40 * time.Second

// secretValues stand for the values of the Secret firsttap, by key.
func secretValues() map[string]string {
	return map[string]string{
		"database-url": "mysql://firsttap:password@mysql:3306/firsttap", "migrate-database-url": "mysql://owner:password@mysql:3306/firsttap",
		"redis-url": "redis://:password@redis:6379", "admin-key": "an-admin-key-for-the-tests-of-kubernetes",
		"jwt-secret": "a-jwt-secret-for-the-tests-of-kubernetes",
	}
}

// environment returns the variables of the only container, as the kubelet sets them. Secrets that are optional are not there.
func environment(m manifests, pod corev1.PodSpec, secret map[string]string) (map[string]string, error) {
	env := map[string]string{}
	for _, from := range pod.Containers[0].EnvFrom {
		if from.ConfigMapRef == nil || from.ConfigMapRef.Name != m.settings.Name || from.Prefix != "" {
			return nil, fmt.Errorf("the variables are not those of the ConfigMap %s: %+v", m.settings.Name, from)
		}
		for name, value := range m.settings.Data {
			env[name] = value
		}
	}
	for _, v := range pod.Containers[0].Env {
		switch {
		case v.ValueFrom == nil:
			env[v.Name] = v.Value
		case v.ValueFrom.SecretKeyRef == nil:
			return nil, fmt.Errorf("%s is not from a Secret", v.Name)
		case v.ValueFrom.SecretKeyRef.Optional != nil && *v.ValueFrom.SecretKeyRef.Optional:
		case v.ValueFrom.SecretKeyRef.Name != "firsttap" || secret[v.ValueFrom.SecretKeyRef.Key] == "":
			return nil, fmt.Errorf("%s is from %s/%s, which nobody creates", v.Name, v.ValueFrom.SecretKeyRef.Name, v.ValueFrom.SecretKeyRef.Key)
		default:
			env[v.Name] = secret[v.ValueFrom.SecretKeyRef.Key]
		}
	}
	return env, nil
}

// readSettings returns the settings of a pod, and what is wrong with its variables: config does not know one, or refuses the whole. The job
// that migrates needs no secrets.
func readSettings(m manifests, pod corev1.PodSpec) (c config.Config, wrong []string) {
	env, err := environment(m, pod, secretValues())
	if err != nil {
		return c, []string{err.Error()}
	}
	known := map[string]bool{}
	c, err = config.Read(func(name string) (string, bool) {
		known[name] = true
		value, set := env[name]
		return value, set
	})
	if slices.Contains(pod.Containers[0].Args, "migrate") {
		err = config.WithoutSecrets(err)
	}
	if err != nil {
		wrong = append(wrong, err.Error())
	}
	for _, v := range pod.Containers[0].Env {
		known[v.Name] = known[v.Name] || strings.HasPrefix(v.Name, "OTEL_") // the SDK reads those
		if !known[v.Name] {
			wrong = append(wrong, "config does not know "+v.Name)
		}
	}
	for name := range m.settings.Data {
		if !known[name] && !strings.HasPrefix(name, "OTEL_") {
			wrong = append(wrong, "config does not know "+name)
		}
	}
	return c, wrong
}

// broken returns the rules that the manifests break.
func broken(t *testing.T, m manifests) (wrong []string) {
	t.Helper()
	rule := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	pod, job := m.deployment.Spec.Template, m.job.Spec.Template
	if len(pod.Spec.Containers) != 1 || len(job.Spec.Containers) != 1 {
		return []string{"a pod has one container"}
	}
	serving, bad := readSettings(m, pod.Spec)
	wrong = append(wrong, bad...)
	_, bad = readSettings(m, job.Spec)
	wrong = append(wrong, bad...)
	rule(!serving.Migrate, "the pods migrate too: FIRSTTAP_MIGRATE is not off")
	for what, p := range map[string]corev1.PodSpec{"pod": pod.Spec, "job": job.Spec} {
		wrong = append(wrong, rights(what, p)...)
	}
	app, migrate := pod.Spec.Containers[0], job.Spec.Containers[0]
	rule(slices.Equal(app.Args, []string{"serve"}) && slices.Equal(migrate.Args, []string{"migrate", "up"}), "arguments %q and %q", app.Args, migrate.Args)
	rule(app.Image == migrate.Image, "the pods run %s, and the job %s", app.Image, migrate.Image)
	rule(strings.Contains(read(t, "../../docs/operations.md"), "docker build -t "+app.Image+" "), "docs/operations.md does not build %s", app.Image)
	wrong = append(wrong, stopping(serving, pod.Spec)...)
	wrong = append(wrong, probes(t, app)...)
	wrong = append(wrong, ports(serving, app, m)...)
	wrong = append(wrong, availability(m)...)
	wrong = append(wrong, selectors(m)...)
	return wrong
}

func rights(what string, p corev1.PodSpec) (wrong []string) {
	c := p.Containers[0]
	for name, ok := range map[string]bool{
		"it is not root, but the image's user": p.SecurityContext != nil && p.SecurityContext.RunAsNonRoot != nil && *p.SecurityContext.RunAsNonRoot &&
			p.SecurityContext.RunAsUser != nil && *p.SecurityContext.RunAsUser == 65532,
		"it has the usual seccomp profile": p.SecurityContext != nil && p.SecurityContext.SeccompProfile != nil &&
			p.SecurityContext.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault,
		"it has no token of the cluster's API": p.AutomountServiceAccountToken != nil && !*p.AutomountServiceAccountToken,
		"its root file system is read-only": c.SecurityContext != nil && c.SecurityContext.ReadOnlyRootFilesystem != nil &&
			*c.SecurityContext.ReadOnlyRootFilesystem,
		"it can't get more rights": c.SecurityContext != nil && c.SecurityContext.AllowPrivilegeEscalation != nil &&
			!*c.SecurityContext.AllowPrivilegeEscalation && c.SecurityContext.Capabilities != nil &&
			slices.Equal(c.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}),
		"it has a memory limit, which GOMEMLIMIT is derived from": !c.Resources.Limits.Memory().IsZero(),
		"it has no CPU limit": c.Resources.Limits.Cpu().IsZero(),
		"it requests CPU and no more memory than it may have":      !c.Resources.Requests.Cpu().IsZero() && !c.Resources.Requests.Memory().IsZero() && c.Resources.Requests.Memory().Cmp(*c.Resources.Limits.Memory()) <= 0,
		"it starts the image's program (there is nothing else)":    len(c.Command) == 0,
		"no variable overrides what the program derives by itself": !slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == "GOMEMLIMIT" || v.Name == "AUTOMEMLIMIT" }),
	} {
		if !ok {
			wrong = append(wrong, what+": "+name+": no")
		}
	}
	return wrong
}

// stopping: after the preStop the instance has the time that it may take.
func stopping(c config.Config, p corev1.PodSpec) (wrong []string) {
	hook := p.Containers[0].Lifecycle
	if hook == nil || hook.PreStop == nil || hook.PreStop.Sleep == nil || p.TerminationGracePeriodSeconds == nil {
		return []string{"there is no preStop that sleeps, or no grace period"}
	}
	needs := time.Duration(hook.PreStop.Sleep.Seconds)*time.Second + c.Drain + stopTime
	if grace := time.Duration(*p.TerminationGracePeriodSeconds) * time.Second; grace < needs {
		return []string{fmt.Sprintf("the grace period is %s, and to stop may take %s", grace, needs)}
	}
	return nil
}

// probes asks for paths that the API's document has.
func probes(t *testing.T, c corev1.Container) (wrong []string) {
	var api struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal([]byte(read(t, "../../openapi/openapi.json")), &api); err != nil {
		t.Fatal(err)
	}
	for path, p := range map[string]*corev1.Probe{"/livez": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
		switch {
		case p == nil || p.HTTPGet == nil || p.HTTPGet.Path != path || p.HTTPGet.Port.StrVal != "http":
			wrong = append(wrong, "no probe asks for "+path+" at the port http")
		case api.Paths[path]["get"] == nil:
			wrong = append(wrong, "the API has no "+path)
		}
	}
	return wrong
}

// ports: the container's ports are where the program listens, and the Service and the monitor lead there.
func ports(c config.Config, app corev1.Container, m manifests) (wrong []string) {
	listens := map[string]string{"http": c.Addr, "ops": c.OpsAddr}
	for _, p := range app.Ports {
		if want := fmt.Sprintf(":%d", p.ContainerPort); listens[p.Name] != want {
			wrong = append(wrong, fmt.Sprintf("the port %s is %s, and the program listens on %q", p.Name, want, listens[p.Name]))
		}
		delete(listens, p.Name)
	}
	for name := range listens {
		wrong = append(wrong, "the container does not name the port "+name)
	}
	served := map[string]bool{}
	for _, p := range m.service.Spec.Ports {
		served[p.Name] = slices.ContainsFunc(app.Ports, func(c corev1.ContainerPort) bool { return c.Name == p.TargetPort.StrVal })
	}
	if !served["http"] || !served["ops"] {
		wrong = append(wrong, "the Service does not lead to the ports http and ops")
	}
	for _, e := range m.monitor.Spec.Endpoints {
		if !served[e.Port] || e.Path != "/metrics" {
			wrong = append(wrong, fmt.Sprintf("the monitor asks for %s at the port %q", e.Path, e.Port))
		}
	}
	if len(m.monitor.Spec.Endpoints) != 1 {
		wrong = append(wrong, "the monitor has one endpoint")
	}
	for _, from := range m.network.Spec.Ingress {
		for _, p := range from.Ports {
			if !slices.ContainsFunc(app.Ports, func(c corev1.ContainerPort) bool { return c.Name == p.Port.StrVal }) || len(from.From) == 0 {
				wrong = append(wrong, fmt.Sprintf("the network policy lets %d sources in to %s", len(from.From), p.Port))
			}
		}
	}
	return wrong
}

// availability: of two pods on two nodes one is left, whatever is replaced.
func availability(m manifests) (wrong []string) {
	d := m.deployment.Spec
	rolling := d.Strategy.RollingUpdate
	if d.Replicas == nil || *d.Replicas < 2 || rolling == nil || rolling.MaxUnavailable == nil || rolling.MaxUnavailable.String() != "0" {
		wrong = append(wrong, "there are not always two pods")
	}
	if m.disruption.Spec.MaxUnavailable == nil || m.disruption.Spec.MaxUnavailable.String() != "1" {
		wrong = append(wrong, "the disruption budget is not 1")
	}
	spread := map[string]corev1.UnsatisfiableConstraintAction{}
	for _, c := range d.Template.Spec.TopologySpreadConstraints {
		if selects(c.LabelSelector, d.Template.Labels) {
			spread[c.TopologyKey] = c.WhenUnsatisfiable
		}
	}
	if spread["kubernetes.io/hostname"] != corev1.DoNotSchedule || spread["topology.kubernetes.io/zone"] != corev1.ScheduleAnyway {
		wrong = append(wrong, fmt.Sprintf("the pods are spread by %v", spread))
	}
	return wrong
}

func selects(s *metav1.LabelSelector, what map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && s != nil && !selector.Empty() && selector.Matches(labels.Set(what))
}

// selectors: everything selects the pods, and only what is meant for the job selects the job's.
func selectors(m manifests) (wrong []string) {
	pod, job := m.deployment.Spec.Template.Labels, m.job.Spec.Template.Labels
	for what, s := range map[string]*metav1.LabelSelector{
		"deployment": m.deployment.Spec.Selector, "service": {MatchLabels: m.service.Spec.Selector}, "disruption budget": m.disruption.Spec.Selector,
	} {
		if !selects(s, pod) || selects(s, job) {
			wrong = append(wrong, "the "+what+" does not select the pods alone")
		}
	}
	if s := &m.network.Spec.PodSelector; !selects(s, pod) || !selects(s, job) {
		wrong = append(wrong, "the network policy does not select the pods and the job's")
	}
	if !selects(&m.monitor.Spec.Selector, m.service.Labels) {
		wrong = append(wrong, "the monitor does not select the service")
	}
	want := []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	if !slices.Equal(m.network.Spec.PolicyTypes, want) {
		wrong = append(wrong, "the network policy does not limit both directions")
	}
	for what, namespace := range map[string]string{
		"deployment": m.deployment.Namespace, "job": m.job.Namespace, "service": m.service.Namespace, "monitor": m.monitor.Namespace,
		"network policy": m.network.Namespace, "disruption budget": m.disruption.Namespace, "settings": m.settings.Namespace,
	} {
		if namespace != m.namespace.Name {
			wrong = append(wrong, "the "+what+" is in the namespace "+namespace)
		}
	}
	if m.namespace.Labels["pod-security.kubernetes.io/enforce"] != "restricted" {
		wrong = append(wrong, "the namespace does not restrict pods")
	}
	return wrong
}

func read(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// section returns the part of docs/operations.md about Kubernetes.
func section(t *testing.T) string {
	t.Helper()
	found := regexp.MustCompile(`(?ms)^## On Kubernetes$.*?(^## |\z)`).FindString(read(t, "../../docs/operations.md"))
	if found == "" {
		t.Fatal("docs/operations.md has no section about Kubernetes")
	}
	return found
}

package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

const (
	checkEvery = 10 * time.Second
	// How long API servers may take to learn of new authorities before their certificate is served.
	settleMax  = 5 * time.Second
	triesMax   = 10
	retryAfter = 100 * time.Millisecond

	authoritiesKey = "ca.crt"
)

var errOvertaken = errors.New("another replica was faster")

// keeper holds the certificate that the webhook serves with. It makes and renews what the Secret holds, and writes the
// authorities into the webhook's configuration, before anything is served with them. Any number of replicas may do so
// at once: each writes only over what it has read, and one that is overtaken reads again.
type keeper struct {
	client        kubernetes.Interface
	namespace     string
	secret        string
	configuration string
	names         []string // DNS names under which API servers call.
	lifetime      time.Duration
	readOnly      bool // Somebody else makes the Secret and the configuration's authorities.

	served atomic.Pointer[tls.Certificate]

	// The fields below belong to run().
	current   material // Material of `served`.
	next      material // Published, served after settle().
	nextSince time.Time
}

// certificate is what a TLS handshake gets. It may be called from any goroutine.
func (k *keeper) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	served := k.served.Load()
	if served == nil {
		return nil, errors.New("there is no certificate yet")
	}
	return served, nil
}

// Certificates that live shorter, as in tests, are looked at more often and change faster.
func (k *keeper) pause() time.Duration  { return min(checkEvery, k.lifetime/20) }
func (k *keeper) settle() time.Duration { return min(settleMax, k.lifetime/20) }

// run keeps the certificate until the context ends.
func (k *keeper) run(ctx context.Context) {
	for ctx.Err() == nil {
		pause := k.pause()
		if err := k.keep(ctx); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "Cannot keep the webhook's certificate; what is served stays", "secret", k.secret,
				"configuration", k.configuration)
			pause = min(pause, time.Second)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func (k *keeper) keep(ctx context.Context) error {
	var err error
	for try := range triesMax {
		var found material
		if found, err = k.agree(ctx); err == nil {
			return k.serve(found, time.Now())
		}
		if !errors.Is(err, errOvertaken) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retryAfter * time.Duration(try+1)):
		}
	}
	return err
}

// agree returns what the Secret holds, once it is good and the configuration believes it.
//
// The configuration is read before the Secret and only written over as it was read. So its authorities are never replaced
// by older ones: whoever published newer ones since has changed it.
func (k *keeper) agree(ctx context.Context) (material, error) {
	if k.readOnly {
		secret, err := k.client.CoreV1().Secrets(k.namespace).Get(ctx, k.secret, metav1.GetOptions{})
		if err != nil {
			return material{}, err
		}
		found := materialOf(secret)
		return found, found.check(k.names, time.Now(), 0)
	}
	configurations := k.client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	configuration, err := configurations.Get(ctx, k.configuration, metav1.GetOptions{})
	if err != nil {
		return material{}, err
	}
	found, err := k.ensureSecret(ctx)
	if err != nil {
		return material{}, err
	}
	patch := publish(configuration, found.authorities)
	if patch == nil {
		return found, nil
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return material{}, err
	}
	_, err = configurations.Patch(ctx, k.configuration, types.JSONPatchType, text, metav1.PatchOptions{})
	if apierrors.IsInvalid(err) || apierrors.IsConflict(err) {
		return material{}, errOvertaken
	}
	return found, err
}

// publish returns what makes a configuration believe these authorities; nil when it does.
func publish(configuration *admissionregistrationv1.MutatingWebhookConfiguration, authorities []byte) []operation {
	var patch []operation
	for i, webhook := range configuration.Webhooks {
		if !bytes.Equal(webhook.ClientConfig.CABundle, authorities) {
			patch = append(patch, operation{Op: "add", Path: fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", i),
				Value: authorities})
		}
	}
	if patch == nil {
		return nil
	}
	unchanged := operation{Op: "test", Path: "/metadata/resourceVersion", Value: configuration.ResourceVersion}
	return append([]operation{unchanged}, patch...)
}

// ensureSecret returns what the Secret holds, after it was made or renewed if that was due.
func (k *keeper) ensureSecret(ctx context.Context) (material, error) {
	secrets := k.client.CoreV1().Secrets(k.namespace)
	secret, err := secrets.Get(ctx, k.secret, metav1.GetOptions{})
	absent := apierrors.IsNotFound(err)
	if err != nil && !absent {
		return material{}, err
	}
	if absent {
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: k.secret, Namespace: k.namespace}}
	}
	found := materialOf(secret)
	reason := found.check(k.names, time.Now(), k.lifetime/3)
	if reason == nil {
		return found, nil
	}
	made, err := issue(k.names, time.Now(), k.lifetime, found.authorities)
	if err != nil {
		return material{}, err
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	secret.Data[authoritiesKey] = made.authorities
	secret.Data[corev1.TLSCertKey] = made.certificate
	secret.Data[corev1.TLSPrivateKeyKey] = made.key
	if absent {
		_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	} else {
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
		return material{}, errOvertaken
	}
	if err != nil {
		return material{}, err
	}
	klog.InfoS("Made a new certificate for the webhook", "secret", k.secret, "why", reason.Error(),
		"validFor", k.lifetime.String())
	return made, nil
}

func materialOf(secret *corev1.Secret) material {
	return material{authorities: secret.Data[authoritiesKey], certificate: secret.Data[corev1.TLSCertKey],
		key: secret.Data[corev1.TLSPrivateKeyKey]}
}

// serve changes to what was agreed upon: at once when nothing that is valid is served, else after settle().
func (k *keeper) serve(agreed material, now time.Time) error {
	if agreed.equal(k.current) {
		return nil
	}
	if !agreed.equal(k.next) {
		k.next, k.nextSince = agreed, now
	}
	served := k.served.Load()
	if served != nil && now.Before(served.Leaf.NotAfter) && now.Before(k.nextSince.Add(k.settle())) {
		return nil
	}
	pair, err := agreed.pair()
	if err != nil {
		return err
	}
	k.served.Store(pair)
	k.current = agreed
	klog.InfoS("Serving with a certificate", "serial", fmt.Sprintf("%x", pair.Leaf.SerialNumber),
		"until", pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	return nil
}

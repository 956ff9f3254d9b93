// Boards, alerts and recording rules as a mixin. With the values below its rendering equals grafana/ and deploy/monitoring/.
//
//   jb install github.com/OWNER/plimsoll@v0.1.0
//   local plimsoll = (import 'github.com/OWNER/plimsoll/deploy/mixin.libsonnet') + { _config+:: { clusterLabel: 'k8s_cluster' } };
{
  _config:: {
    // The label of series that names their cluster.
    clusterLabel: 'cluster',
    // Matchers that the series of boards need in addition, such as 'team="platform"'.
    selector: '',
    // The folder of the runbooks.
    runbookUrl: 'https://plimsoll.dev/docs/runbooks',
  },

  local config = self._config,
  local replaceAll(text, pairs) = std.foldl(function(text, pair) std.strReplace(text, pair[0], pair[1]), pairs, text),
  // Where the name of the label can be in queries, templates and descriptions.
  local labelPlaces = ['cluster=', '(cluster', ', cluster)', ', cluster,', '$labels.cluster', ' cluster]'],
  local withLabel(text) = replaceAll(text, [
    [place, std.strReplace(place, 'cluster', config.clusterLabel)]
    for place in labelPlaces
    if config.clusterLabel != 'cluster'
  ]),
  local board(text) = std.parseJson(withLabel(
    if config.selector == '' then text
    else std.strReplace(text, '{cluster=', '{' + std.strReplace(config.selector, '"', '\\"') + ', cluster=')
  )),
  local rules(text) = std.parseYaml(
    withLabel(std.strReplace(text, 'https://plimsoll.dev/docs/runbooks', config.runbookUrl))
  ),

  grafanaDashboards+:: {
    'plimsoll-overview.json': board(importstr '../grafana/overview.json'),
    'plimsoll-vertical.json': board(importstr '../grafana/vertical.json'),
    'plimsoll-horizontal.json': board(importstr '../grafana/horizontal.json'),
    'plimsoll-watermark.json': board(importstr '../grafana/watermark.json'),
    'plimsoll-history.json': board(importstr '../grafana/history.json'),
    'plimsoll-controller.json': board(importstr '../grafana/controller.json'),
  },
  prometheusAlerts+:: rules(importstr './monitoring/alerts.yaml'),
  prometheusRules+:: rules(importstr './monitoring/recording.yaml'),
}

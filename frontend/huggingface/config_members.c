/* Members of config.json that change no result: of all models, and of some families. Rates of dropout are among them:
 * results without training do not depend on them, and what is dropped in training other options say. */
#include <string.h>

#include "base/parts.h"
#include "frontend/huggingface/config_reading.h"

static const char of_all[] =
    "_attn_implementation _attn_implementation_autoset _attn_implementation_internal _commit_hash "
    "_flash_attn_2_enabled _name_or_path _num_labels architectures bad_words_ids begin_suppress_tokens "
    "bos_token_id chunk_size_feed_forward cls_token_id cross_attention_hidden_size decoder_start_token_id "
    "diversity_penalty do_sample dtype early_stopping eos_token_id finetuning_task forced_bos_token_id "
    "forced_eos_token_id gradient_checkpointing id2label initializer_range is_encoder_decoder "
    "keys_to_ignore_at_inference label2id length_penalty mask_token_id max_length min_length model_type "
    "name_or_path no_repeat_ngram_size num_beams num_labels output_attentions output_hidden_states output_past "
    "output_scores pad_token_id prefix problem_type remove_invalid_values repetition_penalty return_dict "
    "return_dict_in_generate sentence_transformers sep_token_id suppress_tokens task_specific_params temperature "
    "tf_legacy_loss tie_encoder_decoder tokenizer_class top_k top_p torch_dtype torchscript transformers_version "
    "typical_p unk_token_id unsloth_fixed unsloth_version use_bfloat16 use_cache";

#define ON(family) (1u << FAMILY_##family)

static const struct {
    unsigned families;
    const char *members;
} of_some[] = {
    {ON(BERT) | ON(ROBERTA) | ON(ELECTRA) | ON(ALBERT) | ON(MPNET) | ON(DEBERTA) | ON(NOMIC) | ON(GTE),
     "attention_probs_dropout_prob classifier_dropout hidden_dropout_prob"},
    {ON(BERT) | ON(ROBERTA),
     "directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head "
     "pooler_type task_type_vocab_size"},
    {ON(DISTILBERT), "attention_dropout dropout qa_dropout seq_classif_dropout sinusoidal_pos_embds tie_weights_"},
    {ON(ELECTRA), "summary_activation summary_last_dropout summary_type summary_use_proj"},
    {ON(ALBERT), "classifier_dropout_prob down_scale_factor gap_size net_structure_type num_memory_blocks"},
    {ON(DEBERTA), "padding_idx pooler_dropout"},
    {ON(MODERNBERT) | ON(DECODER),
     "classifier_dropout deterministic_flash_attn embedding_dropout initializer_cutoff_factor mlp_dropout "
     "reference_compile repad_logits_with_grad sparse_pred_ignore_index sparse_prediction"},
    {ON(DECODER), "attn_pdrop embd_pdrop hidden_dropout n_ctx resid_pdrop summary_activation summary_first_dropout "
                  "summary_proj_to_labels summary_type summary_use_proj"},
    {ON(T5), "classifier_dropout dropout_rate initializer_factor n_positions num_decoder_layers output_past "
             "scale_decoder_outputs tie_word_embeddings"},
    {ON(MODERNBERT), "layer_norm_eps"},
    {ON(MODERNBERT) | ON(DECODER) | ON(EUROBERT), "attention_dropout pretraining_tp"},
};

bool config_member_is_harmless(Family family, const char *key)
{
    if (strchr(key, ' ')) return false;
    bool harmless = text_has_part(of_all, key, " ");
    for (size_t i = 0; i < sizeof of_some / sizeof *of_some; i++)
        harmless |= (of_some[i].families >> family & 1) && text_has_part(of_some[i].members, key, " ");
    return harmless;
}
